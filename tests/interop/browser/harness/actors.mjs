// Hands of people who use a page: with a pointer alone, or with keys alone. Both follow links, press buttons
// and fill in fields that a person finds by their names.

import assert from 'node:assert/strict'

/** The most presses of Tab to a link: more than any page of a story has. */
const MANY = 400

/** Moves a pointer and presses its button. Text is typed where it was pressed. */
export class Mouse {
    constructor(page) {
        this.page = page
    }

    async press(element) {
        await element.click()
    }

    async tick(element) {
        await element.click()
    }

    async write(element, text) {
        await element.click()
        await this.page.keyboard.insertText(text)
    }

    async choose(element, label) {
        // The list that a select opens is drawn outside of the page.
        await element.selectOption({ label })
    }
}

/** Presses Tab and Enter, and the space bar for a checkbox. */
export class Keyboard {
    constructor(page) {
        this.page = page
    }

    /**
     * Tabs to an element. On the path to it, focus can be seen and does not stay. A page that follows its run may put a
     * new element in place of it meanwhile.
     */
    async reach(element) {
        let wanted
        for (let presses = 0; presses < MANY; presses += 1) {
            if (!(await wanted?.evaluate((element) => element.isConnected))) {
                wanted = await element.elementHandle()
                await wanted.evaluate((element) => (element.place = 'wanted'))
            }
            const focus = await this.page.evaluate(focused)
            assert(focus.isSeen, `focus cannot be seen: ${focus.what}`)
            if (focus.place === 'wanted') return wanted.evaluate((element) => delete element.place)
            await this.page.keyboard.press('Tab')
        }
        assert.fail(`Tab does not reach ${element}`)
    }

    async press(element) {
        await this.reach(element)
        await this.page.keyboard.press('Enter')
    }

    async tick(element) {
        await this.reach(element)
        await this.page.keyboard.press('Space')
    }

    async write(element, text) {
        await this.reach(element)
        await this.page.keyboard.insertText(text)
    }

    async choose(element, label) {
        await this.reach(element)
        const chosen = () => element.evaluate((select) => select.selectedOptions[0].label)
        for (let presses = 0; presses < MANY && (await chosen()) !== label; presses += 1) {
            await this.page.keyboard.press('ArrowDown')
        }
        assert.equal(await chosen(), label)
    }
}

/** Whether what has the focus can be seen to have it: runs in the page. */
export function focused() {
    const element = document.activeElement
    if (!element || element === document.body) return { what: 'the page', isSeen: true, isPage: true }
    const what = element.cloneNode().outerHTML.slice(0, 160)
    const style = getComputedStyle(element)
    const isMarked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1
    // Part of it is enough (WCAG 2.4.11): a region may be larger than the window.
    const isOnTop = [...element.getClientRects()].some((box) => {
        const [left, top] = [Math.max(box.left, 0), Math.max(box.top, 0)]
        const [width, height] = [Math.min(box.right, innerWidth) - left, Math.min(box.bottom, innerHeight) - top]
        if (width <= 0 || height <= 0) return false
        const parts = [0.1, 0.5, 0.9]
        const points = parts.flatMap((x) => parts.map((y) => [left + width * x, top + height * y]))
        const tops = points.map(([x, y]) => document.elementFromPoint(x, y))
        return tops.some((top) => top && (element.contains(top) || top.contains(element)))
    })
    return { what, place: element.place, isSeen: isMarked && isOnTop }
}

/** Tabs through a whole page: every link, button and field gets the focus once, and it can be seen there. */
export async function walk(page) {
    const count = await page.evaluate(() => {
        const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]'
        const open = [...document.querySelectorAll(all)].filter((element) => element.checkVisibility() && !element.disabled)
        open.forEach((element, place) => (element.place = place))
        document.activeElement?.blur()
        return open.length
    })
    const met = new Set()
    for (let presses = 0; presses < count + 2 && met.size < count; presses += 1) {
        await page.keyboard.press('Tab')
        const focus = await page.evaluate(focused)
        assert(focus.isSeen, `focus cannot be seen on ${page.url()}: ${focus.what}`)
        if (focus.place !== undefined) met.add(focus.place)
    }
    const missed = await page.evaluate((met) => {
        const all = [...document.querySelectorAll('*')].filter((element) => element.place !== undefined)
        return all.filter((element) => !met.includes(element.place)).map((element) => element.outerHTML.slice(0, 160))
    }, [...met])
    assert.deepEqual(missed, [], `Tab does not reach these on ${page.url()}`)
    return count
}
