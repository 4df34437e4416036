// Engines with principals, and people who sign in to them.

import { join } from 'node:path'

/** Who may sign in, and as what: `environment.yaml` has the same names. */
const NAMES = ['ada', 'bo', 'vera', 'root']

export const tokenOf = (name) => `token-of-${name}`

/** An engine of which each request needs a token; this test has that of `root`. */
export async function asPeople({ engines, kit }) {
    const variables = Object.fromEntries(NAMES.map((name) => [`TOKEN_OF_${name.toUpperCase()}`, tokenOf(name)]))
    return engines.start({ kit, env: join(kit, 'environments/people.env.yaml'), variables, token: tokenOf('root') })
}

/** An engine of this machine alone. */
export async function asLocal({ engines, kit }, variables = {}) {
    return engines.start({ kit, env: join(kit, 'environments/local.env.yaml'), variables })
}

/** A person who signs in and continues with a page. */
export async function signIn({ browser }, engine, name, to) {
    const person = await browser.visitor(engine.url)
    await person.open(`${engine.pages}/${to}`)
    await person.page.getByLabel('Token').fill(tokenOf(name))
    await person.page.getByRole('button', { name: 'Sign in' }).click()
    await person.page.getByRole('button', { name: 'Sign out' }).waitFor()
    return person
}
