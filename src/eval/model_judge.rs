//! Checks that a model makes: what it is asked, and what its replies say.
//!
//! ```text
//! check, run ─JudgeQuestion::of─▶ question ─next─▶ llm.request ─(recorded, sent, recorded)─▶ llm.response
//!                                     ▲                                                      │
//!                                     └───────────────────── JudgeCall ◀─────────────────────┘
//! check, calls ─finding─▶ result
//! ```
//!
//! Nothing here sends anything. What is next follows from the recorded calls alone, so that an eval
//! that was interrupted asks only what has no reply, and anyone can make the result again.

pub(crate) mod calls;
pub(crate) mod check;
pub(crate) mod finding;
pub(crate) mod open;
pub(crate) mod prompt;
pub(crate) mod question;
pub(crate) mod reply;
pub(crate) mod template;
