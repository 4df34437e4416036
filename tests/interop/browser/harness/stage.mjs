// What stories have in common: a browser, and engines.

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Browser } from './browser.mjs'
import { Engines } from './engine.mjs'

const here = dirname(dirname(fileURLToPath(import.meta.url)))

/** `folder` is where npm has installed, `scratch` is for ledgers and logs. */
export async function openStage({ ktsu, folder, scratch, isWhole = false }) {
    const engines = new Engines(ktsu, scratch)
    const browser = await Browser.start(folder)
    return {
        isWhole,
        repository: join(here, '../../..'),
        kit: join(here, 'kit'),
        engines,
        browser,
        async close() {
            await browser.end()
            await engines.end()
        },
    }
}
