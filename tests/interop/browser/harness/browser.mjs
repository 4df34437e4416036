// One Chromium for all stories, and contexts in it that keep what pages did which they must not do.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PATIENCE_MS } from './engine.mjs'

/** Names that end in `.example` are this machine; every other one is nowhere. */
const NAMES = 'MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost'
const FLAGS = [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', `--host-resolver-rules=${NAMES}`,
]

export class Browser {
    #chromium

    /** Starts Chromium, with what npm has installed in a folder. */
    static async start(folder) {
        const require = createRequire(join(folder, 'package.json'))
        const browser = new Browser()
        const { chromium } = require('playwright-core')
        const executablePath = process.env.KTSU_CHROMIUM
        // Its user data are in a new folder each time.
        browser.#chromium = await chromium.launch({ executablePath, args: FLAGS, headless: true })
        browser.axe = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8')
        return browser
    }

    /** A context of its own: cookies and all. `own` is an address of the origin that its pages may ask. */
    async visitor(own, options = {}) {
        const context = await this.#chromium.newContext({ viewport: { width: 1440, height: 900 }, ...options })
        context.setDefaultTimeout(PATIENCE_MS)
        const seen = { violations: [], foreign: [], dialogs: [], errors: [] }
        await context.exposeBinding('reportViolation', (_, violation) => seen.violations.push(violation))
        await context.addInitScript(() => {
            document.addEventListener('securitypolicyviolation', (event) =>
                window.reportViolation(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`))
        })
        const origins = new Set([new URL(own).origin])
        context.on('request', (request) => {
            if (!origins.has(new URL(request.url()).origin)) seen.foreign.push(request.url())
        })
        context.on('dialog', (dialog) => {
            seen.dialogs.push(dialog.message())
            return dialog.dismiss()
        })
        context.on('weberror', (error) => seen.errors.push(String(error.error())))
        context.on('console', (message) => {
            if (/content security policy|trusted/i.test(message.text())) seen.violations.push(message.text())
        })
        return new Visitor(context, await context.newPage(), seen, origins)
    }

    /** The memory of the largest page, in KiB: that of its process, and its share of what it has in common with others. */
    async largestPageKib() {
        const session = await this.#chromium.newBrowserCDPSession()
        const { processInfo } = await session.send('SystemInfo.getProcessInfo')
        await session.detach()
        const renderers = processInfo.filter(({ type }) => type === 'renderer')
        const rollups = renderers.map(({ id }) => readFile(`/proc/${id}/smaps_rollup`, 'utf8'))
        const shares = (await Promise.all(rollups)).map((rollup) => Number(/^Pss:\s+(\d+) kB$/m.exec(rollup)[1]))
        return Math.max(...shares)
    }

    async end() {
        await this.#chromium.close()
    }
}

/** A person with a browser of its own. */
export class Visitor {
    #origins

    constructor(context, page, seen, origins) {
        this.context = context
        this.page = page
        this.seen = seen
        this.#origins = origins
    }

    /** Lets it ask other engines, too. */
    allow(urls) {
        for (const url of urls) this.#origins.add(new URL(url).origin)
    }

    /** Opens an address; gives the status. */
    async open(url) {
        const response = await this.page.goto(url, { waitUntil: 'load' })
        return response.status()
    }

    /** Gives what pages have done that they must not do, and forgets it. */
    take() {
        const taken = Object.entries(this.seen).filter(([, all]) => all.length > 0)
        const copy = Object.fromEntries(taken.map(([name, all]) => [name, all.splice(0)]))
        return copy
    }

    /** Leaves, after no page has done what it must not do. */
    async leave() {
        await this.context.close()
        assert.deepEqual(this.take(), {})
    }
}
