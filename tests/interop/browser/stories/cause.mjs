// From a run that went wrong to the cause, and to a branch that goes right: README's story, in a browser.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Keyboard, Mouse } from '../harness/actors.mjs'
import { until } from '../harness/engine.mjs'
import { receiver } from '../harness/servers.mjs'

export const stories = [
    ['a run that paged no one leads to its cause and to a branch that does, by mouse alone', (stage) => story(stage, Mouse)],
    ['a run that paged no one leads to its cause and to a branch that does, by keyboard alone', (stage) => story(stage, Keyboard)],
]

async function story({ engines, browser, repository }, Actor) {
    const hooks = await receiver()
    const engine = await engines.start({
        kit: join(repository, 'kits/triage'),
        env: join(repository, 'environments/local.env.yaml'),
        variables: { RECEIVER_URL: hooks.url },
    })
    const ticket = JSON.parse(await readFile(join(repository, 'kits/triage/examples/ticket.json'), 'utf8'))
    const { run_id: run } = await engine.run('ticket', ticket)
    assert.deepEqual(hooks.received.map((hook) => hook.path), ['/queues/security'])

    const person = await browser.visitor(engine.url)
    const { page } = person
    const actor = new Actor(page)
    await person.open(`${engine.pages}/runs`)
    const link = (name) => page.getByRole('main').getByRole('link', { name, exact: true })
    const shows = (text) => page.getByText(text, { exact: false }).first().waitFor()

    await actor.write(page.getByLabel('Workflow'), 'ticket')
    await actor.press(page.getByRole('button', { name: 'Show' }))
    await actor.press(link(run))
    await actor.press(link('page'))
    await actor.press(link('Why it did not run'))
    await shows('its condition step.sort.urgency == `1` is false')
    await shows('reply of sort: urgency')
    // The frame that skipped it, and the one before, which was the last in which it could still run.
    await actor.press(page.getByRole('region', { name: 'Answer' }).getByRole('link', { name: /^\d+$/ }).first())
    const panel = page.getByRole('complementary', { name: 'Frame' })
    await panel.getByRole('heading', { name: 'step.skipped' }).waitFor()
    await actor.press(panel.getByRole('link', { name: /^\d+$/ }).first())
    await panel.getByRole('heading', { name: 'step.completed' }).waitFor()
    await actor.press(panel.getByText('Fork after this frame'))
    await actor.write(panel.getByLabel('Values to change'), '{"step.sort.output.urgency": 1}')
    await actor.choose(panel.getByLabel('Webhooks'), 'are sent')
    await actor.tick(panel.getByLabel('Continue at once'))
    await actor.write(panel.getByLabel('Reason'), 'a sign-in that no one can explain is urgent')
    await actor.press(panel.getByRole('button', { name: 'Make the branch' }))

    await page.waitForURL(/\/runs\/branch_/)
    const branch = page.url().match(/branch_[0-9a-f]+/)[0]
    await until('the end of the branch', () => engine.get(`/runs/${branch}`), (it) => it.run.status === 'complete')
    const sent = hooks.received.map((hook) => hook.path).sort()
    assert.deepEqual(sent, ['/pages/on-call', '/queues/security', '/queues/security'])
    await actor.press(link('page'))
    await page.getByRole('heading', { name: /page.*complete/ }).waitFor()
    await actor.press(link('Compare with the run it was forked from'))
    await page.waitForURL(/\/diff\?/)
    await isCompared(page, run, branch)
    await actor.press(link(run))
    await actor.press(link('page'))
    await page.getByRole('heading', { name: /page.*skipped/ }).waitFor()
    await selectsTime(page, actor)
    await person.leave()
    hooks.close()
}

/** A part of the time is selected on the axis: by dragging, or by a link of a mark; the whole run comes back. */
async function selectsTime(page, actor) {
    const axis = page.locator('svg.axis')
    if (actor instanceof Mouse) {
        const { x, y, width } = await axis.boundingBox()
        await page.mouse.move(x + width * 0.1, y + 12)
        await page.mouse.down()
        await page.mouse.move(x + width * 0.6, y + 12, { steps: 3 })
        await page.mouse.up()
    } else {
        await actor.press(axis.getByRole('link').first())
    }
    await page.waitForURL(/from=\d+&until=\d+/)
    await actor.press(page.getByRole('link', { name: 'The whole run' }))
    await page.waitForURL((url) => !url.searchParams.has('from'))
}

/** The comparison says what was changed, what followed from it, and what the branch took. */
async function isCompared(page, run, branch) {
    const text = (await page.getByRole('main').innerText()).replaceAll(/\s+/g, ' ')
    for (const words of [
        `A ${run} ticket`, `B ${branch} ticket`, 'That is within what was expected', 'A has step.skipped page',
        'output.paged null true', 'output.urgency 2 1', 'overlay', 'status skipped complete',
    ]) assert(text.includes(words), `${words} is not in ${text}`)
}
