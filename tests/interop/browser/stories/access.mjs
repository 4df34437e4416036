// Pages for everyone: axe, the keyboard, narrow screens, and the size of what one presses.

import assert from 'node:assert/strict'
import { Keyboard, walk } from '../harness/actors.mjs'
import { asLocal } from '../harness/people.mjs'
import { everyState, show } from '../harness/states.mjs'
import { site } from '../harness/servers.mjs'

export const stories = [
    ['axe finds nothing serious on any page, in either theme, wide and narrow', axeOnEveryPage],
    ['no page scrolls sideways at 390 px, and what one presses has 24 px', narrowPages],
    ['Tab reaches everything on a page, where focus can be seen', keyboardOnPages, true],
    ['the slider of a world leads from frame to frame by keys alone', slider],
    ['these checks find faults in a page that has them', faulty],
]

const TAGS = ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']
const [WIDE, NARROW] = [{ width: 1440, height: 900 }, { width: 390, height: 844 }]

/** One set of pages for all stories of this file. */
let known
const states = (stage) => (known ??= everyState(stage))

async function axeOnEveryPage(stage) {
    const looks = [
        ['light', WIDE], ['dark', NARROW], ...(stage.isWhole ? [['dark', WIDE], ['light', NARROW]] : []),
    ]
    const all = await states(stage)
    const found = await Promise.all(looks.map(async ([colorScheme, viewport]) => {
        const person = await stage.browser.visitor(all[0].url, { colorScheme, viewport })
        person.allow(all.map((state) => state.url))
        const found = []
        for (const state of all) {
            await show(person, state)
            const faults = await serious(stage, person.page)
            found.push(...faults.map((fault) => `${state.name}, ${colorScheme}, ${viewport.width} px: ${fault}`))
        }
        await person.leave()
        return found
    }))
    assert.deepEqual(found.flat(), [])
    return `${all.length} pages, ${looks.length} times`
}

/** What axe finds that is serious or worse. */
async function serious({ browser }, page) {
    // A program of the test, and not one of the page: the policy of the page stays what it is.
    await page.evaluate(browser.axe)
    const { violations, passes } = await page.evaluate((values) =>
        window.axe.run(document, { runOnly: { type: 'tag', values }, resultTypes: ['violations'] }), TAGS)
    assert(passes.length > 5, 'axe has looked at little')
    const grave = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
    return grave.flatMap(({ id, nodes }) => nodes.slice(0, 3).map(({ html }) => `${id}: ${html.slice(0, 160)}`))
}

async function narrowPages(stage) {
    const all = await states(stage)
    const person = await stage.browser.visitor(all[0].url, { viewport: NARROW })
    person.allow(all.map((state) => state.url))
    const found = []
    for (const state of all) {
        await show(person, state)
        const faults = [...(await person.page.evaluate(sideways)), ...(await person.page.evaluate(small))]
        found.push(...faults.map((fault) => `${state.name}: ${fault}`))
    }
    await person.leave()
    assert.deepEqual(found, [])
}

/** What makes the page wider than the screen: runs in the page. */
function sideways() {
    const root = document.documentElement
    if (root.scrollWidth <= root.clientWidth) return []
    const wide = [...document.body.querySelectorAll('*')].filter((element) => {
        const inside = element.parentElement.closest('.scroll, pre, svg')
        return !inside && element.getBoundingClientRect().right > root.clientWidth + 0.5
    })
    return [`${root.scrollWidth} px wide: ${wide.slice(0, 3).map((element) => element.outerHTML.slice(0, 100))}`]
}

/** Buttons and fields that are smaller than 24 px: runs in the page. A label is pressed, too. */
function small() {
    const all = [...document.querySelectorAll('button, input:not([type=hidden]), select, textarea, summary, .button')]
    const size = (element) => {
        const { width, height } = (element.closest('label') ?? element).getBoundingClientRect()
        return [width, height]
    }
    const visible = all.filter((element) => element.checkVisibility())
    const faults = visible.filter((element) => Math.min(...size(element)) < 24)
    return faults.map((element) => `${size(element)} px: ${element.outerHTML.slice(0, 120)}`)
}

async function keyboardOnPages(stage) {
    const every = await states(stage)
    // A press takes as long as the page is drawn: each third state in CI.
    const all = stage.isWhole ? every : every.filter((_, n) => n % 3 === 2)
    const looks = stage.isWhole ? [WIDE, NARROW] : [WIDE]
    let count = 0
    for (const viewport of looks) {
        const person = await stage.browser.visitor(all[0].url, { viewport })
        person.allow(all.map((state) => state.url))
        for (const state of all) {
            await show(person, state)
            count += await walk(person.page)
        }
        await person.leave()
    }
    return `${count} links, buttons and fields on ${all.length} pages`
}

async function slider(stage) {
    const engine = await asLocal(stage)
    const { run_id: run } = await engine.run('shelf', { goal: 'a shelf', things: [{ name: 'a thing' }] })
    const person = await stage.browser.visitor(engine.url)
    const { page } = person
    await person.open(`${engine.pages}/runs/${run}/world`)
    const slider = page.getByRole('slider', { name: 'Frame' })
    const last = Number(await slider.inputValue())
    for (const seq of [last - 1, last - 2]) {
        await new Keyboard(page).reach(slider)
        await page.keyboard.press('ArrowLeft')
        await page.waitForURL((url) => url.searchParams.get('at') === String(seq))
        assert.equal(await slider.inputValue(), String(seq))
    }
    await person.leave()
}

async function faulty(stage) {
    const body = `<!doctype html><html lang="en"><title>A page with faults</title><main><h1>Faults</h1>
        <p style="color: #bbb; background: #fff">too little contrast</p><input name="without a label">
        <button style="width: 12px; height: 12px; padding: 0; outline: none">x</button>
        <div style="width: 900px">too wide</div><a href="/" tabindex="-1">never</a></main>`
    const wrong = await site({ '/': { body } })
    const person = await stage.browser.visitor(wrong.url, { viewport: NARROW })
    await person.open(wrong.url)
    const found = (await serious(stage, person.page)).map((fault) => fault.split(':')[0])
    for (const id of ['color-contrast', 'label']) assert(found.includes(id), `axe has found ${found}`)
    assert.equal((await person.page.evaluate(small)).length, 2)
    assert.equal((await person.page.evaluate(sideways)).length, 1)
    await assert.rejects(walk(person.page), /focus cannot be seen/)
    await person.page.addStyleTag({ content: 'button { outline: 2px solid !important }' })
    await assert.rejects(walk(person.page), /Tab does not reach these/)
    await person.context.close()
    wrong.close()
}
