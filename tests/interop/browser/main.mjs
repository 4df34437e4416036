// Runs the stories one after another, and prints a line for each, as test runners do.

import { openStage } from './harness/stage.mjs'

const PARTS = ['cause', 'race', 'sites', 'access', 'hostile', 'live', 'interruption', 'large']

const [extent, ktsu, folder, scratch, ...names] = process.argv.slice(2)
const stage = await openStage({ ktsu, folder, scratch, isWhole: extent === '--all' })

/** The most stories at once: each waits for a server or the browser most of the time. */
const AT_ONCE = 2

const wanted = []
for (const part of PARTS) {
    const { stories } = await import(`./stories/${part}.mjs`)
    for (const [name, story, isLarge] of stories) {
        const isNamed = names.length === 0 || names.some((one) => name.includes(one))
        if (isNamed && (stage.isWhole || !isLarge)) wanted.push([name, story])
    }
}

let [passed, failed] = [0, 0]
const begun = performance.now()
try {
    await Promise.all(Array.from({ length: AT_ONCE }, playStories))
} finally {
    await stage.close()
}
const seconds = ((performance.now() - begun) / 1000).toFixed(1)
console.log(`\nbrowser result: ${failed ? 'FAILED' : 'ok'}. ${passed} passed; ${failed} failed; in ${seconds} s`)
// What a failed story has left open does not keep this process.
process.exit(failed ? 1 : 0)

async function playStories() {
    for (let next = wanted.shift(); next; next = wanted.shift()) await play(...next)
}

async function play(name, story) {
    const from = performance.now()
    const took = () => `${Math.round(performance.now() - from)} ms`
    try {
        const notes = await story(stage)
        passed += 1
        console.log(`browser: ${name} ... ok (${notes ? `${notes}, ` : ''}${took()})`)
    } catch (error) {
        failed += 1
        console.log(`browser: ${name} ... FAILED (${took()})\n${error.stack}`)
    }
}
