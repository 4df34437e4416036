// Texts that are hostile to pages, in every place where pages show what others have written.

import assert from 'node:assert/strict'
import { HUGE, shown, shownArguments, shownFields, shownFrame, shownJson, shownValue, texts } from '../harness/hostile.mjs'
import { asLocal, asPeople } from '../harness/people.mjs'
import { site } from '../harness/servers.mjs'
import { isVerbatim } from '../harness/verbatim.mjs'

export const stories = [
    ['hostile texts in prompts, replies, errors and reasons are shown as they are recorded', ofAgents],
    ['hostile texts in names, fields and ids of a world are shown as they are recorded', inWorlds],
    ['hostile texts that people are asked about, or give as reasons, are shown as they are recorded', ofPeople, true],
    ['hostile texts in addresses are text', inAddresses, true],
    ['a page that takes texts for markup is found', canaries],
]

const count = (stage) => (stage.isWhole ? 3000 : 200)
const MODES = ['says', 'flags', 'skips', 'breaks', 'babbles']
/** Tabs at once. */
const TABS = 2

/** Each piece of work in one of a few tabs. */
async function inTabs(stage, engine, work, visit) {
    const rest = [...work]
    const tab = async () => {
        const visitor = await stage.browser.visitor(engine.url)
        for (let next = rest.shift(); next !== undefined; next = rest.shift()) await visit(visitor, next)
        await visitor.leave()
    }
    await Promise.all(Array.from({ length: TABS }, tab))
}

async function ofAgents(stage) {
    const engine = await asLocal(stage)
    const items = texts(count(stage)).map((text, n) => ({ mode: MODES[n % MODES.length], text: babble(n, text) }))
    const batches = []
    for (let from = 0; from < items.length; from += 20) batches.push(items.slice(from, from + 20))
    batches.push(...HUGE.slice(0, stage.isWhole ? 3 : 1).map((text) => [{ mode: 'says', text }]))
    let pages = 0
    for (const batch of batches) {
        const envelope = await engine.run('texts', { items: batch })
        const run = `${engine.pages}/runs/${envelope.run_id}`
        // Each text is on the pages of the run, too.
        const own = envelope.steps[0].items.filter((_, n) => stage.isWhole || n % 4 === 0)
        const visits = own.map((item) => [`${run}/steps/${item.id}`, ofItem(item)])
        visits.push([`${run}?step=${envelope.steps[0].items.at(-1).id}`, []])
        visits.push([`${run}?items=all`, []], [`${run}/frames`, []], [`${run}/why?of=output`, []])
        visits.push([`${run}/steps/all`, shownFields(envelope.steps[1].output).map((text) => ['output', text])])
        const { frames } = await engine.get(`/runs/${envelope.run_id}/frames?limit=10000`)
        const opened = frames.filter(({ type, seq }) => type === 'run.created' || seq % (stage.isWhole ? 11 : 71) === 0)
        visits.push(...opened.map((frame) => [`${run}/frames?from=${frame.seq}&type=x&frame=${frame.seq}`, [['frame', shownFrame(recorded(frame))]]]))
        pages += visits.length
        await inTabs(stage, engine, visits, async (visitor, [url, expected]) => {
            assert.equal(await visitor.open(url), 200, url)
            await isVerbatim(visitor, expected)
        })
    }
    return `${items.length} texts on ${pages} pages`
}

/** A frame as it is recorded: the API adds what is behind its hash. */
function recorded(frame) {
    const names = Object.keys(frame)
    return Object.fromEntries(names.slice(0, names.indexOf('hash') + 1).map((name) => [name, frame[name]]))
}

/** What a model says that is no text of JSON: some of it JSON whose names are hostile. */
function babble(n, text) {
    return MODES[n % MODES.length] === 'babbles' && n % 2 === 0 ? JSON.stringify({ said: 1, [text]: text }) : text
}

const json = (name, value) => [name, shownJson(value)]

/** What the page of an item shows of it, as a step. */
function ofItem(item) {
    const expected = []
    if (item.output !== undefined) expected.push(...shownFields(item.output).map((text) => ['output', text]))
    if (item.raw_output !== undefined) expected.push(...shownValue(item.raw_output).map((text) => ['output of the agent', text]))
    if (item.error) expected.push(['error', shown(`${item.error.code}: ${item.error.message}`)])
    if (item.skip_reason) expected.push(['reason', shown(item.skip_reason)])
    return expected
}

async function inWorlds(stage) {
    const engine = await asLocal(stage)
    const all = texts(count(stage)).filter((_, n) => stage.isWhole || n % 5 === 0)
    const batches = []
    for (let from = 0; from < all.length; from += 40) batches.push(all.slice(from, from + 40))
    batches.push(HUGE.slice(0, 1))
    let pages = 0
    for (const batch of batches) {
        const things = batch.map((name) => ({ name, near: idLike(name) }))
        const { run_id: run } = await engine.run('shelf', { goal: batch[0].slice(0, 4096), things })
        const patches = (await engine.frames(run)).filter(({ type }) => type === 'object.patched')
        // Of every second thing that others are near, there is an object with that id.
        const posted = things.filter((_, n) => n % 2 === 0)
        const events = posted.map(({ name, near: id }) => ({ type: 'object.created', data: { id, type: 'Thing', data: { name } } }))
        await engine.post(`/runs/${run}/events`, events)
        const world = `${engine.pages}/runs/${run}/world`
        const visits = [[world, things.flatMap(ofThing)], [`${world}?at=${patches.at(-1).seq}`, things.map(({ near }) => ['end', shown(near)])]]
        const some = patches.map((patch, n) => [patch, batch[n]]).filter((_, n) => stage.isWhole || n % 20 === 1)
        visits.push(...some.map(([{ seq, data }, name]) => [`${world}?object=${data.id}&at=${seq}`, ofPatch(name)]))
        visits.push(...posted.filter((_, n) => stage.isWhole || n % 10 === 0).map(({ name, near }) =>
            [`${world}?object=${encodeURIComponent(near)}`, [['id', shown(near)], ['name', shownStart(name, 2000)]], isKeptByForms(near)]))
        pages += visits.length
        await inTabs(stage, engine, visits, async (visitor, [url, expected, isSlid]) => {
            assert.equal(await visitor.open(url), 200, url)
            await isVerbatim(visitor, expected)
            if (!isSlid) return
            // What is selected remains: its id goes through a form.
            const before = new URL(visitor.page.url()).searchParams.get('object')
            await visitor.page.getByRole('button', { name: 'Show' }).first().click()
            await visitor.page.waitForURL((to) => to.searchParams.has('at'))
            assert.equal(new URL(visitor.page.url()).searchParams.get('object'), before)
            await isVerbatim(visitor, expected)
        })
    }
    return `${all.length} texts on ${pages} pages`
}

/** The beginning of a text that can be an id. */
const idLike = (text) => [...text].slice(0, 256).join('') || 'an id'

/** Whether a form sends a text as it is: lines end with CRLF there, and HTML has no NUL. */
const isKeptByForms = (text) => !/[\0\r\n]/.test(text)

/** The first characters of a text, as pages show them beside how much is left out. */
function shownStart(text, most) {
    const start = [...text].slice(0, most).join('')
    return shown(start.length < text.length ? start.replace(/^ | $/g, '') : start)
}

/** What the tables of a world show of a thing. */
function ofThing({ name, near }, n) {
    const end = n % 2 === 0 ? [] : [['end', shown(near)]]
    return [['relation', shownStart(JSON.stringify({ why: name }), 140)], ...end]
}

/** What is beside a world of a thing of which a frame has changed the note. */
function ofPatch(name) {
    const after = JSON.stringify(name)
    // The beginning of a longer one is within a text that says how much is left out.
    const edit = [...after].length > 120 ? [] : [['after', shown(after)]]
    return [['name', shownStart(name, 2000)], ...edit]
}

async function ofPeople(stage) {
    const engine = await asLocal(stage)
    const all = texts(count(stage))
    const some = all.filter((_, n) => n % 10 === 3).map((text) => text.slice(0, 4096))
    // Each call of a run is a question.
    for (let from = 0; from < all.length; from += 50) {
        const items = all.slice(from, from + 50)
        await engine.waiting('calls', { items }, items.length)
    }
    for (const text of some) {
        await engine.waiting('reviewed', { text })
        await engine.waiting('suspended', { text })
    }
    const asked = new Map((await engine.asked()).map((one) => [idOf(one), one]))
    const visitor = await stage.browser.visitor(engine.url)
    let [met, pages] = [0, 0]
    for (let next = `${engine.pages}/inbox`; next; pages += 1) {
        await visitor.open(next)
        const ids = await visitor.page.locator('article .decide [name$=_id]').evaluateAll((all) => all.map((id) => id.value))
        await isVerbatim(visitor, ids.flatMap((id) => ofQuestion(asked.get(id))))
        met += ids.length
        const newer = visitor.page.getByRole('link', { name: 'Newer' })
        next = (await newer.count()) > 0 ? await newer.evaluate((link) => link.href) : undefined
    }
    assert.equal(met, all.length + 2 * some.length, 'every question is in the inbox')

    for (const [n, reason] of some.slice(0, 40).entries()) {
        const verb = n % 2 === 0 ? 'pause' : 'cancel'
        const run = await engine.waiting('reviewed', { text: reason })
        await engine.post(`/runs/${run}/${verb}`, { reason })
        await visitor.open(`${engine.pages}/runs/${run}`)
        await isVerbatim(visitor, [])
        const note = await visitor.page.locator('.note').first().textContent()
        const said = shown(reason.trim())
        assert(note.includes(said), `${JSON.stringify(note)} has not ${JSON.stringify(said)}`)
    }
    await visitor.leave()
    return `${met} questions on ${pages} pages`
}

const idOf = (one) => one.approval_id ?? one.review_id ?? one.suspend_id

function ofQuestion(one) {
    if (one.kind === 'approval') return [['arguments', shownArguments(one.arguments)]]
    const reason = ['reason', shown(one.reason)]
    if (one.kind === 'review') return [reason, json('payload', one.payload), json('output', one.output)]
    return [reason, json('checkpoint', one.checkpoint)]
}

/** Some of many texts, from all over them. */
function spread(all, { isWhole }) {
    const most = isWhole ? 100 : 6
    return all.filter((_, n) => n % Math.ceil(all.length / most) === 0)
}

async function inAddresses(stage) {
    const [engine, people] = await Promise.all([asLocal(stage), asPeople(stage)])
    const { run_id: run } = await engine.run('fails', { text: 'a text' })
    // An address has its bounds.
    const all = texts(count(stage)).filter((text) => text.length < 1500)
    const isMarkup = (text) => /<\w/.test(text)
    const some = [...spread(all.filter(isMarkup), stage), ...spread(all.filter((text) => !isMarkup(text)), stage)]
    const at = `${engine.pages}/runs`
    const visits = some.flatMap((text) => {
        const given = encodeURIComponent(text)
        return [
            `${at}?workflow=${given}&status=${given}`, `${at}/${run}?step=${given}`, `${at}/${given}`,
            `${at}/${run}/frames?type=${given}&step=${given}&actor=${given}`, `${at}/${run}/why?of=${given}`,
            `${at}/${run}/why?not=${given}`, `${at}/${run}/world?type=${given}&text=${given}&object=${given}`, `${at}?cursor=${given}`, `${engine.pages}/inbox?${given}=${given}`,
            `${people.pages}/sign-in?to=${given}`, `${people.pages}/runs?workflow=${given}`,
        ]
    })
    const met = {}
    await inTabs(stage, engine, visits, async (visitor, url) => {
        visitor.allow([people.url])
        const status = await visitor.open(url)
        met[status] = (met[status] ?? 0) + 1
        assert(status < 500, `${status}: ${url}`)
        if (await visitor.page.locator('main').count()) await isVerbatim(visitor, [])
        else assert.deepEqual(visitor.take(), {}, url)
    })
    return `${visits.length} addresses, answered ${JSON.stringify(met)}`
}

async function canaries(stage) {
    const engine = await asLocal(stage)
    const policy = (await fetch(`${engine.pages}/runs`)).headers.get('content-security-policy')
    const attack = '"><img src=//evil.example/x onerror=alert(1)><script>alert(2)</script>'
    const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;')
    const page = (text, headers = {}) => ({ headers, body: `<!doctype html><title>x</title><main><pre>${text}</pre></main>` })
    const wrong = await site({
        '/right': page(escaped(attack), { 'content-security-policy': policy }),
        '/policy': page(attack, { 'content-security-policy': policy }),
        '/bare': page(attack),
        '/hidden': page('abc\u202edef'),
        '/cut': page(escaped(attack.slice(1))),
        '/href': page(`<a href="javascript:alert(1)">x</a>`),
    })
    const visitor = await stage.browser.visitor(wrong.url)
    const opened = async (path) => visitor.open(`${wrong.url}/${path}`)
    const expected = [['attack', attack]]
    await opened('right')
    await isVerbatim(visitor, expected)
    await opened('policy')
    await assert.rejects(isVerbatim(visitor, []), /elements that are not of the page/)
    const reported = visitor.take()
    assert(reported.violations.length >= 2, JSON.stringify(reported))
    await opened('bare')
    await assert.rejects(isVerbatim(visitor, []), /elements that are not of the page/)
    const done = visitor.take()
    assert.deepEqual(done.dialogs.sort(), ['1', '2'])
    assert(done.foreign[0].startsWith('http://evil.example/'), JSON.stringify(done))
    for (const [path, fault] of [['hidden', /hidden characters/], ['cut', /not shown as it is/], ['href', /lead away/]]) {
        await opened(path)
        await assert.rejects(isVerbatim(visitor, path === 'cut' ? expected : []), fault)
    }
    await visitor.context.close()
    wrong.close()
}
