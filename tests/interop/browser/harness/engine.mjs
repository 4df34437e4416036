// Engines: `ktsu start` on a ledger of its own.

import { execFile, spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'

/** How long anything is waited for: only a broken test waits so long. */
export const PATIENCE_MS = 30_000

/** Starts programs in a folder, and ends all of them. */
export class Engines {
    #started = []

    constructor(ktsu, folder) {
        this.ktsu = ktsu
        this.folder = folder
        // However this test ends, they end with it.
        for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))
        process.once('exit', () => this.#kill())
    }

    /** An engine with a kit, after the runs of an eval `spec`; `token` is shown with every request of `Engine`. */
    async start({ kit, env, variables = {}, token, spec }) {
        const folder = await mkdtemp(join(this.folder, 'engine-'))
        const environment = { PATH: process.env.PATH, HOME: folder, KTSU_DRAIN: '1s', ...variables }
        if (spec) {
            const given = ['eval', 'run', spec, '--env', env, '--ledger', join(folder, 'ledger.db')]
            await promisify(execFile)(this.ktsu, given, { cwd: folder, env: environment })
        }
        const serve = (port) => this.#serve(['--kit', kit, '--env', env, '--port', port], folder, environment)
        const served = await serve('0')
        return new Engine(served, token, serve)
    }

    async #serve(given, folder, env) {
        const all = ['start', ...given, '--ledger', join(folder, 'ledger.db'), '--json']
        const child = spawn(this.ktsu, all, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
        const ended = new Promise((resolve) => child.once('exit', resolve))
        this.#started.push({ child, ended })
        child.stderr.pipe(createWriteStream(join(folder, 'log'), { flags: 'a' }))
        const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
        const first = await lines.next()
        if (first.done) throw new Error(`the engine did not start: see ${folder}/log`)
        return { url: JSON.parse(first.value).url, child, ended }
    }

    /** Ends what was started, by its process id. */
    async end() {
        this.#kill()
        await Promise.all(this.#started.map(({ ended }) => ended))
    }

    #kill() {
        for (const { child } of this.#started) child.kill('SIGKILL')
    }
}

/** The API of an engine. */
export class Engine {
    #served
    #serve

    constructor(served, token, serve) {
        this.url = served.url
        this.token = token
        this.#served = served
        this.#serve = serve
    }

    /** The id of its process. */
    get pid() {
        return this.#served.child.pid
    }

    /** Kills it as a crash does. */
    async kill() {
        this.#served.child.kill('SIGKILL')
        await this.#served.ended
    }

    /** Starts it again after it was killed, on the same ledger and at the same port. */
    async startAgain() {
        this.#served = await this.#serve(new URL(this.url).port)
    }

    get pages() {
        return `${this.url}/inspector`
    }

    async request(method, path, body) {
        const headers = this.token ? { authorization: `Bearer ${this.token}` } : {}
        const sent = body === undefined ? undefined : JSON.stringify(body)
        const response = await fetch(this.url + path, { method, headers, body: sent })
        const text = await response.text()
        if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 300)}`)
        return JSON.parse(text)
    }

    get(path) {
        return this.request('GET', path)
    }

    post(path, body) {
        return this.request('POST', path, body)
    }

    /** Runs a workflow to its end; gives the envelope. */
    async run(workflow, params) {
        return this.post(`/invoke/${workflow}?wait=60`, params)
    }

    /** Starts a workflow; gives the run once so many questions of it wait for people. */
    async waiting(workflow, params, count = 1) {
        const { run_id } = await this.post(`/invoke/${workflow}`, params)
        const asks = () => this.get(`/runs/${run_id}/skeleton?items=0`)
        await until(`${count} questions of ${workflow}`, asks, (skeleton) => skeleton.waiting >= count)
        return run_id
    }

    /** What waits for people. */
    asked() {
        return this.get('/approvals')
    }

    /** Every frame of a run. */
    async frames(run) {
        const { frames } = await this.get(`/runs/${run}/frames?limit=10000&expand=true`)
        return frames
    }
}

/** Asks again until an answer is right. */
export async function until(what, ask, isRight, patience = PATIENCE_MS) {
    const end = Date.now() + patience
    for (;;) {
        const answer = await ask()
        if (isRight(answer)) return answer
        if (Date.now() > end) throw new Error(`waited in vain for ${what}: ${JSON.stringify(answer)?.slice(0, 300)}`)
        await new Promise((resolve) => setTimeout(resolve, 20))
    }
}
