//! What a spec says, and what comes of it.

mod database_tests;
mod filter_tests;
mod http_mock_tests;
mod judge_record_tests;
mod judge_tests;
mod model_judge_tests;
mod program_tests;
mod record_tests;
mod replica_tests;
mod score_tests;
mod spec_tests;
mod suite_tests;
mod support;
