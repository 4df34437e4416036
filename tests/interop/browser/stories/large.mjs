// A run of 100,000 frames. Only on request, on a quiet machine and with the release program: the times are asserted.

import assert from 'node:assert/strict'
import { until } from '../harness/engine.mjs'
import { asLocal } from '../harness/people.mjs'

export const stories = [
    ['of 100,000 frames one sees the first rows, or those of any number, in 300 ms', large, true],
]

const ITEMS = 15_000
/** In milliseconds. */
const MOST_TO_PAINT = 300
const MOST_ROWS = 500
/** From a click to the first paint of what it leads to, for 95 of 100 clicks. */
const MOST_TO_TURN = 100
const MOST_MIB = 100

async function large(stage) {
    const engine = await asLocal(stage)
    const items = Array.from({ length: ITEMS }, (_, n) => ({ mode: 'says', text: `text ${n}` }))
    const { run_id: run } = await engine.post('/invoke/texts', { items })
    const state = () => engine.get(`/runs/${run}`)
    const { run: ended } = await until('the end of the run', state, ({ run }) => run.status === 'complete', 600_000)
    const { frames: last } = await engine.get(`/runs/${run}/frames?type=run.completed`)
    const count = last[0].seq + 1
    assert(count >= 100_000, `${count} frames`)

    const person = await stage.browser.visitor(engine.url)
    const { page } = person
    await page.goto('about:blank')
    const blank = await stage.browser.largestPageKib()
    const rows = () => page.locator('table.frames tbody tr').count()
    const times = {}
    const timed = async (name, url) => {
        assert.equal(await person.open(url), 200)
        const painted = await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)
        times[name] = Math.round(await painted.jsonValue())
        assert((await rows()) <= MOST_ROWS, `${await rows()} rows`)
    }
    const pages = `${engine.pages}/runs/${run}`
    // Nothing was made of the run before either of them.
    await timed('frames', `${pages}/frames`)
    await timed('run', pages)
    assert(await page.getByRole('region', { name: 'Time line' }).isVisible(), 'the whole page follows')
    assert.equal(await page.locator('.early').isVisible(), false)
    await timed('number 73512', `${pages}/frames?from=73512`)
    await page.locator('#f73512').waitFor()
    await timed('a frame', `${pages}/frames?frame=73512#f73512`)
    await page.getByRole('heading', { name: 'Frame 73512' }).waitFor()
    await page.locator('#f73512').waitFor()
    await timed('of a type', `${pages}/frames?type=run.completed`)
    const memory = Math.round((await stage.browser.largestPageKib() - blank) / 1024)
    // What is far beyond the rows that are shown is found where the run is.
    assert.equal(await person.open(`${pages}/frames?search=${encodeURIComponent(items.at(-1).text)}`), 200)
    const found = page.getByRole('link', { name: /^[0-9]{5,6}$/ }).first()
    const on = page.getByRole('link', { name: /^Search on/ })
    for (let looked = 0; looked < 20 && !(await found.isVisible()); looked += 1) await on.click()
    await found.waitFor()
    const turns = await turned(page, `${pages}/frames`)
    await person.leave()
    const words = JSON.stringify({ ...times, 'p95 of 40 pages': turns, 'MiB more': memory })
    assert(turns <= MOST_TO_TURN, `pages are turned in ${turns} ms: ${words}`)
    assert(memory <= MOST_MIB, `${memory} MiB more than a blank page: ${words}`)
    const tooLate = Object.entries(times).filter(([, paint]) => paint > MOST_TO_PAINT)
    assert.deepEqual(tooLate, [], `painted after: ${words}`)
    return `${count} frames in ${ended.totals.duration_ms} ms, painted after ${words}`
}

/** Turns 40 pages by their links; gives how long 95 of 100 took until they were painted, in milliseconds. */
async function turned(page, first) {
    await page.goto(first)
    const took = []
    for (let turn = 0; turn < 40; turn += 1) {
        const before = page.url()
        await page.getByRole('link', { name: /^Later/ }).first().click()
        await page.waitForURL((url) => url.href !== before)
        const painted = await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)
        took.push(Math.round(await painted.jsonValue()))
    }
    return took.sort((a, b) => a - b)[Math.ceil(took.length * 0.95) - 1]
}
