// Servers of the test: receivers of webhooks, other sites, and a proxy in front of an engine.

import { createServer, request } from 'node:http'
import { once } from 'node:events'

/** A server at a port that the system chooses; `handle` gets the request, its body and the response. */
export async function serve(handle) {
    const server = createServer(async (incoming, response) => {
        const parts = []
        for await (const part of incoming) parts.push(part)
        handle(incoming, Buffer.concat(parts), response)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address()
    const close = () => {
        server.closeAllConnections()
        server.close()
    }
    return { port, url: `http://127.0.0.1:${port}`, close }
}

/** Takes every webhook, and keeps what came. */
export async function receiver() {
    const received = []
    const server = await serve((incoming, body, response) => {
        received.push({ path: incoming.url, body: JSON.parse(body) })
        response.end('{}')
    })
    return { ...server, received }
}

/** A site with pages of its own: `{PATH: {headers, body}}`. */
export async function site(pages) {
    return serve((incoming, _, response) => {
        const page = pages[incoming.url.split('?')[0]]
        response.writeHead(page ? 200 : 404, { 'content-type': 'text/html; charset=utf-8', ...page?.headers })
        response.end(page?.body ?? '')
    })
}

/**
 * Passes what is below a prefix on to an engine, and the header `Host` as it came. What `refuses` gives `true` for is
 * answered with 503. It counts the streams of changes that are open, and keeps what came in all of them.
 */
export async function proxy(engine, prefix) {
    const to = new URL(engine.url)
    const seen = { refuses: () => false, refused: 0, open: 0, streams: [], responses: new Set() }
    const server = await serve((incoming, body, response) => {
        if (!incoming.url.startsWith(`${prefix}/`)) return response.writeHead(404).end()
        if (seen.refuses(incoming.url)) {
            seen.refused += 1
            return response.writeHead(503, { 'content-type': 'text/plain' }).end('busy')
        }
        const asked = { host: to.hostname, port: to.port, method: incoming.method, path: incoming.url.slice(prefix.length) }
        const passed = request({ ...asked, headers: incoming.headers }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers)
            if (answer.headers['content-type'] === 'text/event-stream') follow(seen, incoming, answer, response)
            answer.on('error', () => response.destroy())
            answer.pipe(response)
        })
        response.on('close', () => passed.destroy())
        passed.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()))
        passed.end(body)
    })
    const closeStreams = () => seen.responses.forEach((response) => response.destroy())
    return Object.assign(seen, server, { closeStreams })
}

/** Keeps the events of a stream, and where it began. */
function follow(seen, incoming, answer, response) {
    const stream = { after: incoming.headers['last-event-id'], events: [] }
    seen.streams.push(stream)
    seen.open += 1
    seen.responses.add(response)
    response.on('close', () => {
        seen.open -= 1
        seen.responses.delete(response)
    })
    let text = ''
    answer.setEncoding('utf8').on('data', (piece) => {
        text += piece
        const whole = text.split('\n\n')
        text = whole.pop()
        stream.events.push(...whole.map(eventOf).filter(({ data }) => data))
    })
}

/** An event, of its lines: its fields are text, and its data are what their JSON says. */
export function eventOf(lines) {
    const fields = Object.fromEntries(lines.split('\n').map((line) => line.split(/: (.*)/s)))
    return { id: fields.id, data: fields.data && JSON.parse(fields.data) }
}
