//! Evals: checks of a finished run, their results, and the verdict (decisions V1 to V6).
//!
//! Everything here is pure. The caller reads the spec's text, the run's envelope and frames, and the
//! files of a workspace, and runs the programs that checks name.
//!
//! ```text
//! text ─EvalSpec::parse─▶ EvalSpec ─┐
//! records ─FrameFold─▶ FrameView ───┼─judge─▶ CheckResult ─verdict─▶ Verdict
//! envelope, workspace ──────────────┤
//! replies of models ────────────────┘
//! ```

mod aggregate;
mod answers;
mod bench;
mod check_reader;
mod commands;
mod conditions;
mod content;
mod database_reader;
mod field_reader;
mod filter;
mod frames;
mod glob;
mod held;
mod http_mock;
mod http_mock_reader;
mod judge;
mod judge_reader;
mod model_judge;
mod numbers;
mod output;
mod pattern;
mod program_reader;
mod programs;
mod record;
mod rests_on;
mod results;
mod run_files;
mod score;
mod scripts;
mod shapes;
mod spec;
mod spec_reader;
mod sql;
mod suite;
mod suite_reader;
mod surroundings;
mod surroundings_reader;
mod tally;
mod trace;

pub use answers::{ANSWERS, Answer, Answers};
pub use check_reader::micro_usd;
pub use conditions::OutputCheck;
pub use content::Workspace;
pub use filter::{FilterError, FrameFilter};
pub use frames::{FrameFold, FrameView, FrameViewError};
pub use held::Held;
pub use http_mock::check::MockCheck;
pub use http_mock::record::{MockRecord, MockRequest, ServiceRecords};
pub use http_mock::reply::{MockState, PlannedReply};
pub use http_mock::routes::{HttpMock, MockFault};
pub use judge::{Subject, judge, judge_each};
pub use model_judge::calls::JudgeCall;
pub use model_judge::check::{JudgeCheck, JudgeInput};
pub use model_judge::finding::JudgeReplies;
pub use model_judge::question::{JudgeMessage, JudgeQuestion, JudgeStep, JudgeSubject};
pub use programs::{
    CheckProgram, CommandCheck, CustomCheck, DatabasePlace, ProgramLimits, ProgramPlaces,
    ProgramRun, Programs, SqlCheck,
};
pub use record::{
    CausedEvent, EvalRecord, EvalWriter, JUDGE, JudgedAgain, JudgedRun, RecordFault, RecordedCall,
    judge_again,
};
pub use results::MAX_FRAMES_NAMED;
pub use score::{ScenarioVerdict, rounded, verdict};
pub use shapes::EVAL;
pub use spec::{
    CheckKind, Content, CountRange, EvalSpec, Invariant, MAX_FILE, MAX_INVARIANTS, ToolPattern,
    ToolUse, TraceCheck,
};

pub use suite::{EvalSubject, MAX_SCENARIOS, Scenario, Suite, SuiteLimits};
pub use surroundings::{
    DatabaseKind, DatabaseService, PARAMS, PROGRAM, SuiteServices, SuiteWorkspace, ToolService,
    WORKSPACE, filled,
};

#[cfg(test)]
mod tests;
