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

/** Passes what is below a prefix on to an engine, and the header `Host` as it came. */
export async function proxy(engine, prefix) {
    const to = new URL(engine.url)
    return serve((incoming, body, response) => {
        if (!incoming.url.startsWith(`${prefix}/`)) return response.writeHead(404).end()
        const asked = { host: to.hostname, port: to.port, method: incoming.method, path: incoming.url.slice(prefix.length) }
        const passed = request({ ...asked, headers: incoming.headers }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers)
            answer.pipe(response)
        })
        passed.on('error', () => response.writeHead(502).end())
        passed.end(body)
    })
}
