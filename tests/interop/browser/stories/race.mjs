// Two people who decide on the same call at the same time.

import assert from 'node:assert/strict'
import { until } from '../harness/engine.mjs'
import { asPeople, signIn } from '../harness/people.mjs'

export const stories = [
    ['of two people who decide on one call at once, one does, and the other sees who was faster', race],
]

async function race(stage) {
    const engine = await asPeople(stage)
    const run = await engine.waiting('calls', { items: ['the only one'] })
    const [asked] = await engine.asked()
    const names = ['ada', 'bo']
    const people = await Promise.all(names.map((name) => signIn(stage, engine, name, 'inbox')))
    for (const { page } of people) await page.getByText('"the only one"').waitFor()

    const press = ({ page }, name) => page.getByRole('button', { name }).click()
    await Promise.all([press(people[0], 'Approve'), press(people[1], 'Reject')])
    for (const { page } of people) await page.waitForLoadState('load')

    const decided = await engine.get(`/runs/${run}/steps/each.0/approval?approval_id=${asked.approval_id}`)
    const winner = names.indexOf(decided.votes[0].by.replace('principal:', ''))
    assert(winner >= 0, JSON.stringify(decided))
    const [first, second] = [people[winner], people[1 - winner]]
    await first.page.waitForURL(/\/inbox$/)
    await first.page.getByText('Nothing waits for people.').waitFor()
    await second.page.getByText(names[winner]).first().waitFor()
    await second.page.getByRole('link', { name: 'Back' }).click()
    await second.page.getByText('Nothing waits for people.').waitFor()
    await until('the end of the run', () => engine.get(`/runs/${run}`), (it) => it.run.status === 'complete')

    const { frames } = await engine.get(`/runs/${run}/frames?type=approval.decided`)
    assert.equal(frames.length, 1)
    for (const person of people) await person.leave()
}
