//! Agent steps: given frames, when a runtime reports, then frames.

mod budget_tests;
mod cache_tests;
mod command_tests;
mod fan_out_tests;
mod invoke_tests;
mod loss_tests;
mod offers_tests;
mod random_tests;
mod refusals_tests;
mod repeated_tests;
mod resume_step_tests;
mod review_tests;
mod settle_tests;
mod still_tests;
mod suppressed_tests;
mod suspend_tests;
mod tools_tests;
