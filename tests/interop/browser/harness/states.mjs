// Engines whose pages are in every state that there is, and the addresses of these pages.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { receiver } from './servers.mjs'
import { asLocal, asPeople, tokenOf } from './people.mjs'
import { until } from './engine.mjs'

/** Checks of which one holds and one does not. */
const SPEC = `invariants:
  asked: {description: Models were asked, check: {type: trace, where: {type: llm.request}, count: {min: 1}}}
  short: {description: It took few steps, gate: true, check: {type: trace, where: {type: step.completed}, count: {max: 0}}}
`

/** Runs in every state: what each page shows is in its name. */
export async function everyState(stage) {
    const [engine, empty, people] = await Promise.all([asLocal(stage), asLocal(stage), asPeople(stage)])
    const say = (count, mode) => Array.from({ length: count }, (_, n) => ({ mode, text: `text ${n}` }))
    const items = [...say(24, 'says'), ...say(2, 'skips'), ...say(2, 'breaks'), ...say(1, 'flags')]
    const things = Array.from({ length: 12 }, (_, n) => ({ name: `thing ${n}`, near: `a thing of another shelf, ${n % 3}` }))
    const [complete, shelf, failed, calls, reviewed, suspended, paused, cancelled, ofPeople] = await Promise.all([
        engine.run('texts', { items }),
        engine.run('shelf', { goal: 'a shelf', things }),
        engine.run('fails', { text: 'a text that is no kind' }),
        engine.waiting('calls', { items: ['one', 'two'] }, 2),
        engine.waiting('reviewed', { text: 'is this right?' }),
        engine.waiting('suspended', { text: 'the data are missing' }),
        engine.waiting('reviewed', { text: 'later' }),
        engine.waiting('suspended', { text: 'never' }),
        people.waiting('calls', { items: ['one'] }),
    ])
    await engine.post(`/runs/${paused}/pause`, { reason: 'until tomorrow' })
    await engine.post(`/runs/${cancelled}/cancel`, { reason: 'not needed any more' })
    const fork = { at_frame: 8, reason: 'what if' }
    const { run_id: branch } = await engine.post(`/runs/${complete.run_id}/fork`, fork)
    // Its page is one of those that others link to.
    await engine.post('/checks', { run: complete.run_id, spec: SPEC, file: 'texts.eval.yaml' })
    const frames = await engine.frames(complete.run_id)
    const request = frames.find((frame) => frame.type === 'llm.request').seq
    const patch = (await engine.frames(shelf.run_id)).findLast((frame) => frame.type === 'object.patched')
    await until('the cancelled run', () => engine.get(`/runs/${cancelled}`), (it) => it.run.status === 'cancelled')

    const at = (name, path, status = 200) => ({ name, url: `${engine.pages}/${path}`, status })
    const run = `runs/${complete.run_id}`
    const world = `runs/${shelf.run_id}/world`
    const known = [
        at('runs', 'runs'),
        at('runs of a filter that has none', 'runs?workflow=absent'),
        { name: 'no runs', url: `${empty.pages}/runs`, status: 200 },
        { name: 'an empty inbox', url: `${empty.pages}/inbox`, status: 200 },
        at('inbox', 'inbox'),
        at('a complete run', run),
        at('all items of a run', `${run}?items=all`),
        at('an item that is skipped', `${run}?step=each.25`),
        at('an item that failed', `${run}?step=each.27`),
        at('a step that is absent', `${run}?step=absent`),
        at('a part of the time of a run', `${run}?from=1&until=60&step=each`),
        at('a step of a definition', 'kit/texts?step=each'),
        at('a failed run', `runs/${failed.run_id}?step=first`),
        at('a run that waits for approvals', `runs/${calls}?step=each.0`),
        at('a run that waits for a review', `runs/${reviewed}?idle=compress`),
        at('a run that waits for data', `runs/${suspended}`),
        at('a paused run', `runs/${paused}`),
        at('a cancelled run', `runs/${cancelled}`),
        at('a branch', `runs/${branch}`),
        at('frames', `${run}/frames?type=step.`),
        at('frames of a filter that has none', `${run}/frames?step=absent`),
        at('a frame', `${run}/frames?step=each.0&frame=${request}`),
        at('a frame that is absent', `${run}/frames?type=run.&frame=99999`),
        at('a world', world),
        at('an object of a world, as a frame left it', `${world}?object=${patch.data.id}&at=${patch.seq}`),
        at('a part of a world that has none', `${world}?type=absent&object=absent&at=0`),
        at('why, not asked yet', `${run}/why`),
        at('where a value came from', `${run}/why?of=output`),
        at('why a step did not run', `runs/${failed.run_id}/why?not=child`),
        at('why, of what is absent', `${run}/why?of=absent`),
        at('a run that is absent', 'runs/absent', 404),
        at('an address that is none', 'runs?colour=red', 400),
        { name: 'sign in', url: `${people.pages}/sign-in`, status: 200 },
        { name: 'inbox of a viewer', url: `${people.pages}/inbox`, status: 200, as: tokenOf('vera') },
        { name: 'run of an admin', url: `${people.pages}/runs/${ofPeople}`, status: 200, as: tokenOf('root') },
    ]
    return [...known, ...(await linked(engine, known))]
}

/** Pages of other kinds, to which those that are known link: one of each kind. */
async function linked(engine, known) {
    const kinds = new Set(known.map((state) => kindOf(state.url)))
    const found = []
    const toSee = known.filter((state) => state.url.startsWith(engine.pages) && state.status === 200)
    for (let next = toSee.shift(); next; next = toSee.shift()) {
        const text = await (await fetch(next.url, { headers: { accept: 'text/html' } })).text()
        for (const [, link] of text.matchAll(/<a [^>]*href="([^"#]+)/g)) {
            const url = new URL(link.replaceAll('&amp;', '&'), next.url).href
            if (!url.startsWith(engine.pages) || kinds.has(kindOf(url))) continue
            kinds.add(kindOf(url))
            const state = { name: `a page that ${next.name} links to (${kindOf(url)})`, url, status: 200 }
            found.push(state)
            toSee.push(state)
        }
    }
    return found
}

/** An address without what is particular: `runs/ID/frames?frame=7` is `runs/:id/frames`. */
function kindOf(url) {
    const [, below] = new URL(url).pathname.split('/inspector/')
    const [first, id, page, ...rest] = below.split('/')
    return [first, id && ':id', page, ...rest.map(() => ':part')].filter(Boolean).join('/')
}

/** Pages of the example kits, as their readers see them: some of them are in the documentation. */
export async function kitStates({ engines, repository }) {
    const hooks = await receiver()
    const kit = (name) => join(repository, 'kits', name)
    const env = join(repository, 'environments/local.env.yaml')
    const variables = { RECEIVER_URL: hooks.url }
    const [triage, judged, incidents] = await Promise.all([
        engines.start({ kit: kit('triage'), env, variables }),
        engines.start({ kit: kit('triage'), env, variables, spec: join(kit('triage'), 'evals/plans.eval.yaml') }),
        engines.start({ kit: kit('incidents'), env, variables }),
    ])
    const example = async (name) => JSON.parse(await readFile(join(kit('triage'), 'examples', `${name}.json`), 'utf8'))
    const [night, ticket] = await Promise.all([
        example('default').then((params) => triage.run('triage', params)),
        example('ticket').then((params) => triage.run('ticket', params)),
    ])
    const alerts = JSON.parse(await readFile(join(kit('incidents'), 'examples/default.json'), 'utf8'))
    const watch = await incidents.waiting('incidents', alerts)
    hooks.close()
    const { objects } = await incidents.get(`/runs/${watch}/world`)
    const finding = objects.findLast((object) => object.type === 'Finding')
    const { evals } = await judged.get('/evals')
    const wide = { width: 1200, colorScheme: 'light' }
    const wider = { width: 1440, colorScheme: 'light' }
    return [
        { name: 'triage', url: `${triage.pages}/runs/${night.run_id}?step=classify.8`, status: 200, look: wide },
        { name: 'ticket', url: `${triage.pages}/runs/${ticket.run_id}/why?not=page`, status: 200, look: wide },
        { name: 'incidents', url: `${incidents.pages}/inbox`, status: 200, look: { ...wide, colorScheme: 'dark' } },
        { name: 'world', url: `${incidents.pages}/runs/${watch}/world?object=${finding.id}&at=${finding.created}`, status: 200, look: wider },
        { name: 'eval', url: `${judged.pages}/evals/${evals[0].eval_id}?scenario=0`, status: 200, look: wider },
        { name: 'kit', url: `${triage.pages}/kit/triage?step=classify`, status: 200, look: wider },
    ]
}

/** Opens a page in its state, with all that is folded open. */
export async function show(visitor, state) {
    await visitor.context.setExtraHTTPHeaders(state.as ? { 'ktsu-token': state.as } : {})
    const status = await visitor.open(state.url)
    if (status !== state.status) throw new Error(`${state.name}: ${status} instead of ${state.status}`)
    const folded = visitor.page.locator('details:not([open]) > summary')
    while ((await folded.count()) > 0) await folded.first().click()
}
