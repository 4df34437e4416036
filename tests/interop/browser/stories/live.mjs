// Pages that follow what changes: in many tabs of a browser, and over the whole of a run.

import assert from 'node:assert/strict'
import { until } from '../harness/engine.mjs'
import { asLocal } from '../harness/people.mjs'
import { proxy } from '../harness/servers.mjs'

export const stories = [
    ['8 and 20 tabs of a browser read one stream, each opens in 1 s, and one that closes hands the stream on', tabs, true],
    ['a run of 28 items is seen item by item, and selection, focus and what is typed remain', itemByItem, true],
]

/** In milliseconds, from the request to a page that is loaded. */
const MOST_TO_OPEN = 1_000
/** In milliseconds, from a change to the page that shows it: pages load again once a second. */
const MOST_TO_SHOW = 3_000

async function tabs(stage) {
    const engine = await asLocal(stage)
    const front = await proxy(engine, '')
    const run = await engine.waiting('calls', { items: ['one', 'two'] }, 2)
    const person = await stage.browser.visitor(front.url)
    const { context } = person
    let leader
    context.on('request', (request) => {
        if (request.url().endsWith('/inspector/live')) leader = request.frame().page()
    })
    const times = []
    const open = async (page, place) => {
        const pages = [`runs/${run}`, 'inbox', `runs/${run}?step=each.0`, 'runs']
        const from = performance.now()
        await page.goto(`${front.url}/inspector/${pages[place % pages.length]}`, { waitUntil: 'load' })
        times.push(Math.round(performance.now() - from))
    }
    const oneStream = (what) => until(`one stream of ${what}`, () => front.open, (count) => count === 1)

    const changing = changes(engine)
    const all = []
    for (const count of [8, 20]) {
        while (all.length < count) {
            all.push(all.length === 0 ? person.page : await context.newPage())
            await open(all.at(-1), all.length)
        }
        // Those that have been open for a while, too: with each of them, the stream may change its reader.
        for (const [place, page] of all.entries()) await open(page, place + 1)
        for (const page of all) await page.locator('[data-state].live').waitFor()
        await oneStream(`${count} tabs`)
    }
    await changing.stop()

    const last = front.streams.at(-1)
    await leader.close()
    const heirs = all.filter((page) => page !== leader)
    await until('another reader', () => front.streams.at(-1), (stream) => stream !== last && stream.events.length > 0)
    await oneStream('19 tabs')
    assert.equal(front.streams.at(-1).after, last.events.at(-1).id, 'it does not begin where the other ended')
    const { run_id: late } = await engine.run('texts', { items: [{ mode: 'says', text: 'late' }] })
    const lists = heirs.filter((page) => page.url().endsWith('/runs'))
    assert(lists.length >= 4, `${lists.length} lists of runs`)
    for (const page of lists) await page.getByRole('link', { name: late }).waitFor()

    await context.close()
    assert.deepEqual(person.take(), {})
    front.close()
    const slow = times.filter((took) => took > MOST_TO_OPEN)
    assert.deepEqual(slow, [], `milliseconds of ${times.length} pages: ${times}`)
    return `${times.length} pages opened in ${Math.max(...times)} ms at most`
}

/** Runs one after another, until it is stopped. */
function changes(engine) {
    let isWanted = true
    const made = (async () => {
        while (isWanted) await engine.run('texts', { items: [{ mode: 'says', text: 'a change' }] })
    })()
    return {
        stop() {
            isWanted = false
            return made
        },
    }
}

async function itemByItem(stage) {
    const COUNT = 28
    const engine = await asLocal(stage)
    const items = Array.from({ length: COUNT }, (_, n) => `item ${n}`)
    const run = await engine.waiting('calls', { items }, COUNT)
    const person = await stage.browser.visitor(engine.url)
    const { page } = person
    const other = await person.context.newPage()
    for (const [one, query] of [[page, '?step=each.3&items=all'], [other, '']]) {
        await one.goto(`${engine.pages}/runs/${run}${query}`)
        await one.evaluate(() => (window.loads = 'once'))
        await one.locator('[data-state].live').waitFor()
    }
    await page.getByText('Cancel…').click()
    await page.locator('#reason-cancel').fill('if the last one is wrong')
    const row = (one, n) => one.locator('table.timeline tr').filter({ has: one.getByRole('link', { name: `each.${n}`, exact: true }) })
    await row(page, 20).getByRole('link').focus()
    const kept = () => page.evaluate(() => ({
        focus: document.activeElement.getAttribute('href'),
        selected: document.querySelector('tr.selected a')?.textContent,
        typed: document.querySelector('textarea[name=reason]:focus, details[open] textarea[name=reason]')?.value,
        loads: window.loads,
    }))
    const before = await kept()
    assert.deepEqual([before.selected, before.typed], ['each.3', 'if the last one is wrong'])

    const asked = Object.fromEntries((await engine.asked()).map((one) => [one.step_id, one.approval_id]))
    const shown = []
    for (let n = 0; n < COUNT; n += 1) {
        const waits = row(page, n).locator('.status')
        assert.equal(await waits.textContent(), '◆waits for people', `each.${n}`)
        const decision = { approval_id: asked[`each.${n}`], decision: 'approved' }
        await engine.post(`/runs/${run}/steps/each.${n}/approval/decide`, decision)
        const from = performance.now()
        await waits.waitFor({ state: 'detached' })
        shown.push(Math.round(performance.now() - from))
        assert.deepEqual(await kept(), before, `after each.${n}`)
    }
    await page.getByRole('complementary', { name: 'Details' }).getByText('"item 3"').first().waitFor()
    // The other tab shows only what is not complete, and the head, in which nothing is typed.
    await other.getByRole('link', { name: `${COUNT} more, all complete` }).or(other.getByRole('heading', { name: 'complete' })).first().waitFor()
    await other.getByRole('heading', { name: `${run} complete` }).waitFor()
    assert.equal(await other.evaluate(() => window.loads), 'once')
    await person.leave()
    const late = shown.filter((took) => took > MOST_TO_SHOW)
    assert.deepEqual(late, [], `shown after milliseconds: ${shown}`)
    return `each shown ${Math.max(...shown)} ms after its end at most`
}
