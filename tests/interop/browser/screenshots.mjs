// Pictures of pages: see `screenshots`.

import { join } from 'node:path'
import { openStage } from './harness/stage.mjs'
import { everyState, kitStates, show } from './harness/states.mjs'

const [ktsu, folder, scratch, out] = process.argv.slice(2)
const stage = await openStage({ ktsu, folder, scratch })

/** Each state in one of these looks, so that every page is seen in several of them. */
const LOOKS = [
    { width: 1440, colorScheme: 'light' },
    { width: 1440, colorScheme: 'dark' },
    { width: 390, colorScheme: 'light' },
    { width: 1024, colorScheme: 'dark' },
    { width: 390, colorScheme: 'dark' },
    { width: 1024, colorScheme: 'light' },
]
const HEIGHTS = { 1440: 900, 1200: 720, 1024: 768, 390: 844 }

try {
    const states = [...(await kitStates(stage)), ...(await everyState(stage))]
    for (const [place, state] of states.entries()) {
        const { width, colorScheme } = state.look ?? LOOKS[place % LOOKS.length]
        const viewport = { width, height: HEIGHTS[width] }
        const person = await stage.browser.visitor(state.url, { viewport, colorScheme })
        await show(person, state)
        const name = `${String(place + 1).padStart(2, '0')}-${state.name.replaceAll(/\W+/g, '-')}-${width}-${colorScheme}.png`
        // What was opened is below: a page is seen from its beginning.
        await person.page.evaluate(() => window.scrollTo(0, 0))
        await person.page.screenshot({ path: join(out, name) })
        await person.context.close()
        console.log(name)
    }
} finally {
    await stage.close()
}
process.exit()
