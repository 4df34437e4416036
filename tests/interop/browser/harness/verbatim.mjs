// Whether a page has what is recorded as text, and nothing that text could have become.

import assert from 'node:assert/strict'

/** The attributes that pages have, and nothing that runs or loads among them. */
const NEVER = /^(on.*|style|srcdoc|srcset|background|formaction|ping|http-equiv)$/
/** The elements that no page has. */
const FOREIGN =
    'script:not([type=module][src]), img, iframe, frame, object, embed, video, audio, source, style, base, math, template, noscript, use, ' +
    'animate, marquee, plaintext, dialog, map, track, meta[http-equiv], [srcdoc], [popover], [accesskey], link:not([rel=stylesheet])'

/** Checks a page that is open; `expected` are pairs of a name and a text that a node or an element has as its whole text. */
export async function isVerbatim(visitor, expected) {
    const { page } = visitor
    const wanted = expected.map(([, text]) => text)
    const found = await page.evaluate(inspect, [FOREIGN, NEVER.source, wanted])
    assert.deepEqual(found.foreign, [], `elements that are not of the page: ${page.url()}`)
    assert.deepEqual(found.attributes, [], `attributes that are not of the page: ${page.url()}`)
    assert.deepEqual(found.links, [], `links that lead away from ${page.url()}`)
    assert.equal(found.hidden, '', `hidden characters on ${page.url()}`)
    for (const { place, from, instead } of found.missing) {
        const [name, text] = expected[place]
        const words = `${name} is not shown as it is recorded on ${page.url()}: ${JSON.stringify(text.slice(from, from + 200))}`
        assert.fail(`${words}, but ${JSON.stringify(instead)}, from character ${from} on`)
    }
    assert.deepEqual(visitor.take(), {}, page.url())
}

/** What is wrong with a page: runs in it. */
function inspect([foreign, never, wanted]) {
    const outer = (element) => element.outerHTML.slice(0, 120)
    const all = [...document.querySelectorAll('*')]
    const attributes = all.filter((element) => [...element.attributes].some(({ name }) => new RegExp(never).test(name)))
    const leads = (element) => {
        const to = element.getAttribute('href') ?? element.getAttribute('action')
        return to !== null && new URL(to, location.href).origin !== location.origin
    }
    // What is typed into fields is what was given; everything else is seen.
    const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/
    const texts = new Set(all.map((element) => element.textContent))
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (nodes.nextNode()) texts.add(nodes.currentNode.data.replace(/^ | $/g, ''))
    // Of what is shown, that which begins most like a text, from where it differs.
    const nearest = (text) => {
        const common = (other) => {
            let length = 0
            while (length < text.length && text[length] === other[length]) length += 1
            return length
        }
        const [from, other] = [...texts].map((other) => [common(other), other]).sort(([a], [b]) => b - a)[0]
        return { from, instead: other.slice(from, from + 200) }
    }
    return {
        foreign: [...document.querySelectorAll(foreign)].map(outer),
        attributes: attributes.map(outer),
        links: all.filter(leads).map(outer),
        hidden: document.documentElement.textContent.match(hidden)?.[0].codePointAt(0).toString(16) ?? '',
        missing: wanted.flatMap((text, place) => (texts.has(text) ? [] : [{ place, ...nearest(text) }])),
    }
}
