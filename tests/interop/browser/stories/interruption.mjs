// Connections that break, engines that are killed, and clients that do not read.

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { readFile } from 'node:fs/promises'
import { once } from 'node:events'
import { until } from '../harness/engine.mjs'
import { asLocal } from '../harness/people.mjs'
import { eventOf, proxy } from '../harness/servers.mjs'

export const stories = [
    ['after 10 s of 503 and after an engine that was killed, pages have no gap and no repeat', interrupted, true],
    ['a page that could not be loaded again, or changed before it was followed, is loaded again later', notLoaded, true],
    ['clients that do not read the stream of changes cost bounded memory, and then see the latest', stalled, true],
]

const one = { items: [{ mode: 'says', text: 'a text' }] }
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const listed = async (engine) => (await engine.get('/runs?limit=1000')).runs

async function interrupted(stage) {
    const engine = await asLocal(stage)
    const front = await proxy(engine, '')
    const run = await engine.waiting('calls', { items: ['one', 'two', 'three'] }, 3)
    const person = await stage.browser.visitor(front.url)
    const list = person.page
    const page = await person.context.newPage()
    // The same list without a proxy, for a connection that is refused.
    const neighbour = await stage.browser.visitor(engine.url)
    await list.goto(`${front.url}/inspector/runs`)
    await page.goto(`${front.url}/inspector/runs/${run}?items=all`)
    await neighbour.open(`${engine.pages}/runs`)
    const all = [list, page, neighbour.page]
    for (const one of all) {
        await one.evaluate(() => (window.loads = 'once'))
        await one.locator('[data-state].live').waitFor()
    }
    const asked = Object.fromEntries((await engine.asked()).map((ask) => [ask.step_id, ask.approval_id]))
    const decide = (n) => engine.post(`/runs/${run}/steps/each.${n}/approval/decide`, { approval_id: asked[`each.${n}`], decision: 'approved' })
    const waiting = (n) => page.locator('table.timeline tr').filter({ hasText: `each.${n}` }).locator('.status')
    const isListed = async (pages) => {
        for (const { run_id } of await listed(engine)) for (const one of pages) await one.getByRole('link', { name: run_id }).waitFor()
    }
    const isAway = (pages) => Promise.all(pages.map((one) => one.locator('[data-state].offline').getByText('not connected; trying again').waitFor()))
    const isBack = (pages) => Promise.all(pages.map((one) => one.locator('[data-state].live').getByText('live').waitFor()))

    // 503 for 10 s: what happens in these is seen afterwards.
    await engine.run('texts', one)
    await isListed([list, neighbour.page])
    front.refuses = () => true
    front.closeStreams()
    await isAway([list, page])
    const away = performance.now()
    await decide(0)
    for (let n = 0; n < 5; n += 1) await engine.run('texts', one)
    await isListed([neighbour.page])
    assert.equal(await list.locator('.state').textContent(), 'not connected; trying again')
    await pause(10_000 - (performance.now() - away))
    assert(front.refused >= 3, `${front.refused} attempts in 10 s`)
    front.refuses = () => false
    await isBack([list, page])
    await waiting(0).waitFor({ state: 'detached' })
    await isListed([list])

    // A crash, and the same ledger at the same port.
    await engine.kill()
    await isAway(all)
    await engine.startAgain()
    await decide(1)
    for (let n = 0; n < 5; n += 1) await engine.run('texts', one)
    await isBack(all)
    await waiting(1).waitFor({ state: 'detached' })
    await isListed([list, neighbour.page])
    await decide(2)
    await page.getByRole('heading', { name: `${run} complete` }).waitFor()

    const runs = await listed(engine)
    for (const one of [list, neighbour.page]) {
        const shown = () => one.locator('table.runs tbody tr').allInnerTexts()
        const rows = await until('the list as it is', shown, (rows) => rows.every((row) => row.includes('complete')))
        const ids = rows.map((row) => row.match(/run_[0-9a-f]+/)[0])
        assert.deepEqual(ids, runs.map((run) => run.run_id), 'the page lists each run once, as the API does')
    }
    const items = await page.locator('table.timeline tbody th a').allTextContents()
    assert.deepEqual(items, ['each', 'each.0', 'each.1', 'each.2'])
    for (const one of all) assert.equal(await one.evaluate(() => window.loads), 'once', 'a page was loaded as a whole')
    isGapless(front.streams, runs)
    await person.leave()
    await neighbour.leave()
    front.close()
    const events = front.streams.reduce((sum, stream) => sum + stream.events.length, 0)
    return `${events} events of ${front.streams.length} streams about ${runs.length} runs`
}

/** Each stream continues where the one before ended; no change comes twice, and the last of each run is how it is. */
function isGapless(streams, runs) {
    let reached
    const last = new Map()
    for (const { after, events } of streams) {
        assert.equal(after, reached, 'the position at which a stream begins')
        for (const { id, data } of events) {
            if (data.runs.length > 0 && reached !== undefined) assert(Number(id) > Number(reached), `${id} after ${reached}`)
            reached = id
            for (const row of data.runs) last.set(row.run_id, row)
        }
    }
    for (const run of runs) assert.deepEqual(last.get(run.run_id), run, `what the stream said last about ${run.run_id}`)
}

/** The stream comes through, and the page that it is about does not; or the page is older than the stream. */
async function notLoaded(stage) {
    const engine = await asLocal(stage)
    const front = await proxy(engine, '')
    const person = await stage.browser.visitor(front.url)
    const { page } = person
    await page.goto(`${front.url}/inspector/runs`)
    await page.locator('[data-state].live').waitFor()
    front.refuses = (url) => !url.endsWith('/live')
    const { run_id: run } = await engine.run('texts', one)
    await until('a page that is refused', () => front.refused, (count) => count > 0)
    // Until nothing more comes that would make it load again.
    await pause(3_000)
    front.refuses = () => false
    await page.getByRole('link', { name: run }).waitFor()
    // What happens after a page is made, and before its script follows the changes.
    await page.route('**/live-*.js', async (route) => {
        await engine.run('texts', one)
        await route.continue()
    })
    await page.goto(`${front.url}/inspector/runs`)
    for (const { run_id } of await listed(engine)) await page.getByRole('link', { name: run_id }).waitFor()
    await person.leave()
    front.close()
}

const READERS = 20
/** So long that what a client does not read of frames is more than sockets hold. */
const long = { items: [{ mode: 'says', text: 'word '.repeat(6_000) }] }
const RUNS = 240
/** What a process may grow by while clients do not read, beyond what it grows by without them. */
const MOST_MIB = 48

async function stalled(stage) {
    const engine = await asLocal(stage)
    const resident = async () => {
        const status = await readFile(`/proc/${engine.pid}/status`, 'utf8')
        return Number(status.match(/VmRSS:\s+(\d+) kB/)[1]) / 1024
    }
    const many = async () => {
        const before = await resident()
        const lane = async () => {
            for (let n = 0; n < RUNS / 8; n += 1) await engine.run('texts', long)
        }
        await Promise.all(Array.from({ length: 8 }, lane))
        return (await resident()) - before
    }
    // Once for what an engine keeps of runs anyhow.
    await many()
    const without = await many()
    const { port } = new URL(engine.url)
    const readers = []
    for (let n = 0; n < READERS; n += 1) {
        const reader = connect(Number(port), '127.0.0.1')
        await once(reader, 'connect')
        const path = ['/inspector/live', '/summaries', '/events?pattern=llm.*,step.*,item.*'][n % 3]
        reader.pause()
        reader.write(`GET ${path} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nlast-event-id: 0\r\n\r\n`)
        readers.push(reader)
    }
    await pause(1_000)
    const stalled = await many()
    const runs = (await listed(engine)).length
    assert(stalled - Math.max(without, 0) < MOST_MIB, `${stalled} MiB with ${READERS} clients, ${without} MiB without them`)

    // One that reads after all catches up in a few events, and then sees what is new.
    const [slow, ...rest] = readers
    for (const reader of rest) reader.destroy()
    let text = ''
    slow.setEncoding('utf8').on('data', (piece) => (text += piece))
    slow.resume()
    const events = () => [...text.matchAll(/^id: (\d+)\r?\ndata: (.*)\r?$/gm)].map(([, id, data]) => ({ id: Number(id), ...JSON.parse(data) }))
    await until('the first event', events, (all) => all.length > 0)
    for (let reached = 0; reached !== text.length; await pause(3_000)) reached = text.length
    const caught = text.length
    const { run_id: newest } = await engine.run('texts', one)
    await until('the newest run', events, (all) => all.some(({ runs }) => runs.some((row) => row.run_id === newest && row.status === 'complete')))
    const ids = events().map(({ id }) => id)
    assert(ids.every((id, place) => place === 0 || id > ids[place - 1]), `positions ${ids}`)
    slow.destroy()
    return `${stalled.toFixed(1)} MiB more with ${READERS} such clients, ${without.toFixed(1)} MiB without; ${runs} runs in ${(caught / 1024).toFixed(0)} KiB`
}
