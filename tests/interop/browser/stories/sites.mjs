// Other sites, which may link to pages and nothing else; a path prefix; and browsers that run no scripts.

import assert from 'node:assert/strict'
import { until } from '../harness/engine.mjs'
import { asLocal, asPeople, signIn } from '../harness/people.mjs'
import { proxy, site } from '../harness/servers.mjs'

const isComplete = (envelope) => envelope.status === 'complete'

export const stories = [
    ['a link of another site opens a page, and its forms, frames and requests are refused', otherSites],
    ['behind a path prefix every link leads to a page, and forms decide', belowPrefix],
    ['without scripts one reads, asks why, and decides by forms', withoutScripts],
]

async function otherSites(stage) {
    const engine = await asPeople(stage)
    const run = await engine.waiting('calls', { items: ['something'] })
    const admin = await signIn(stage, engine, 'root', `runs/${run}`)
    const { page } = admin
    const before = await engine.frames(run)

    const paused = `${engine.pages}/do/runs/${run}/pause`
    const body = `<!doctype html><title>another site</title>
        <a href="${engine.pages}/runs/${run}">a link</a>
        <form method="post" action="${paused}"><input name="reason" value="x"><button>a form</button></form>
        <form method="post" enctype="text/plain" action="${engine.url}/runs/${run}/pause"><button>a program</button></form>
        <form method="post" action="${engine.pages}/sign-out"><button>out</button></form>
        <iframe src="${engine.pages}/runs"></iframe><object data="${engine.pages}/inbox"></object>`
    const other = await site({ '/': { body } })
    // Another site, another host of this machine, and another port of the very host.
    const places = ['http://evil.example', 'http://localhost', 'http://127.0.0.1'].map((host) => `${host}:${other.port}/`)
    for (const place of places) {
        await admin.open(place)
        // Those that are refused may be gone before one can look into them.
        const inFrames = page.frames().slice(1).map((frame) => frame.locator('#main').count().catch(() => 0))
        assert.deepEqual((await Promise.all(inFrames)).filter((count) => count > 0), [], `${place} shows a page in a frame`)
        await page.getByRole('link', { name: 'a link' }).click()
        await page.getByRole('heading', { name: run }).waitFor()
        for (const name of ['a form', 'a program', 'out']) {
            await admin.open(place)
            const answered = page.waitForResponse((response) => response.request().method() === 'POST')
            await page.getByRole('button', { name }).click()
            assert.equal((await answered).status(), 403, `${name} of ${place}`)
        }
    }
    const read = await stage.browser.visitor(engine.url)
    await read.open(places[0])
    const gets = (url) => fetch(url, { credentials: 'include' }).then(() => 'read', () => 'refused')
    assert.equal(await read.page.evaluate(gets, `${engine.pages}/runs`), 'refused')

    await admin.open(`${engine.pages}/runs/${run}`)
    await page.getByRole('button', { name: 'Sign out' }).waitFor()
    assert.deepEqual(await engine.frames(run), before)
    await admin.context.close()
    await read.context.close()
    other.close()
}

async function belowPrefix(stage) {
    const engine = await asPeople(stage)
    const run = await engine.waiting('reviewed', { text: 'seen behind a prefix' })
    const front = await proxy(engine, '/desk/agents')
    const behind = { pages: `${front.url}/desk/agents/inspector`, url: front.url }
    const person = await signIn(stage, behind, 'root', `runs/${run}?step=judge`)
    const { page } = person

    const seen = new Set()
    const toSee = [page.url()]
    while (toSee.length > 0) {
        const url = toSee.pop().split('#')[0]
        if (seen.has(url)) continue
        seen.add(url)
        assert(url.startsWith(`${front.url}/desk/agents/`), `${url} leaves the prefix`)
        // A frame that is opened has the links of every other one, and a part of a time line those of every other part.
        if (/[?&](frame|of|until)=/.test(url) && seen.size > 20) continue
        if (!url.startsWith(behind.pages)) continue
        assert.equal(await person.open(url), 200, url)
        toSee.push(...(await page.locator('a[href]').evaluateAll((links) => links.map((link) => new URL(link.getAttribute('href'), location.href).href))))
    }
    await person.open(`${behind.pages}/inbox`)
    await page.getByLabel('Reason').fill('read behind a prefix')
    await page.getByRole('button', { name: 'Approve' }).click()
    await page.getByText('Nothing waits for people.').waitFor()
    assert(page.url().startsWith(`${behind.pages}/inbox`), page.url())
    await until('the end of the run', () => engine.get(`/runs/${run}/envelope`), isComplete)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
    await person.leave()
    front.close()
    return `${seen.size} addresses`
}

async function withoutScripts(stage) {
    const engine = await asLocal(stage)
    const failed = await engine.run('fails', { text: 'a text that is no kind' })
    const waiting = await engine.waiting('suspended', { text: 'the data are missing' })
    const person = await stage.browser.visitor(engine.url, { javaScriptEnabled: false })
    const { page } = person
    const link = (name) => page.getByRole('main').getByRole('link', { name, exact: true })

    await person.open(`${engine.pages}/runs`)
    await page.getByLabel('Status').selectOption('failed')
    await page.getByRole('button', { name: 'Show' }).click()
    await link(failed.run_id).click()
    await link('child').click()
    await link('Why it did not run').click()
    await page.getByRole('region', { name: 'Answer' }).getByRole('link', { name: /^\d+$/ }).first().click()
    await page.getByRole('complementary', { name: 'Frame' }).getByText('As it is recorded').waitFor()

    await page.getByRole('link', { name: 'Inbox' }).click()
    await page.getByLabel('The data, as JSON').fill('{"mode": "says", "text": "here they are"}')
    await page.getByLabel('Reason').fill('found at last')
    await page.getByRole('button', { name: 'Give the data' }).click()
    await page.getByText('Nothing waits for people.').waitFor()
    const ended = await until('the end of the run', () => engine.get(`/runs/${waiting}/envelope`), isComplete)
    assert.deepEqual(ended.output, { said: 'here they are' })
    await person.leave()
}
