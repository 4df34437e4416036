//! The retries of a group's calls: none unless its file says so.

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;

use super::error::{ErrorCause, GatewayError};
use ktsu_config::retry::RetryOn;

/// The content of a group's `retry:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// In all.
    pub(super) attempts: u32,
    /// The first pause; each is twice as long as the one before.
    pub(super) backoff: Duration,
    /// The failures that are worth another try.
    pub(super) on: Vec<RetryOn>,
}

impl RetryPolicy {
    /// The time to wait before asking again, after so many rounds, the last of which failed like
    /// this. A provider that names a time is not asked before.
    pub(super) fn pause(&self, rounds: u32, failed: &[&GatewayError]) -> Option<Duration> {
        if rounds >= self.attempts {
            return None;
        }
        let worth_it = failed.iter().filter(|failure| self.is_worth_it(failure));
        let waits = worth_it.map(|failure| failure.retry_after.unwrap_or_default());
        // Of several models the first that may answer is enough.
        let wait = waits.min()?;
        let doubled = 2_u32.saturating_pow(rounds.saturating_sub(1));
        Some(wait.max(self.backoff.saturating_mul(doubled)))
    }

    fn is_worth_it(&self, failure: &GatewayError) -> bool {
        let on = match failure.cause {
            ErrorCause::Request | ErrorCause::Provider | ErrorCause::Key => return false,
            ErrorCause::RateLimited => RetryOn::RateLimited,
            ErrorCause::ServerError => RetryOn::ServerError,
            ErrorCause::Timeout => RetryOn::Timeout,
            ErrorCause::Unreachable => RetryOn::Unreachable,
        };
        failure.retryable && self.on.contains(&on)
    }
}

/// The wait that `Retry-After` asks for, in seconds or as a date, or the header in its place in
/// milliseconds.
pub(super) fn after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    if let Some(milliseconds) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(milliseconds / 1e3).ok();
    }
    let text = text("retry-after")?;
    if let Some(seconds) = number(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date that is over is now.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn retry(on: &[RetryOn]) -> RetryPolicy {
        RetryPolicy {
            attempts: 4,
            backoff: Duration::from_millis(100),
            on: on.to_vec(),
        }
    }

    fn busy(retry_after: Option<u64>) -> GatewayError {
        GatewayError {
            retry_after: retry_after.map(Duration::from_millis),
            ..GatewayError::upstream(429, "busy")
        }
    }

    #[test]
    fn pauses_double_and_end_with_the_attempts() {
        let retry = retry(&[RetryOn::ServerError]);
        let failed = GatewayError::upstream(503, "down");
        let pauses: Vec<_> = (1..=5)
            .map(|rounds| retry.pause(rounds, &[&failed]))
            .collect();
        let milliseconds = |count| Some(Duration::from_millis(count));
        assert_eq!(
            pauses,
            [
                milliseconds(100),
                milliseconds(200),
                milliseconds(400),
                None,
                None
            ]
        );
    }

    #[test]
    fn only_what_the_file_names_is_tried_again() {
        let passing = |cause| GatewayError::passing(Code::ProviderError, cause, "m");
        let failures = [
            (RetryOn::RateLimited, busy(None)),
            (RetryOn::ServerError, GatewayError::upstream(500, "")),
            (RetryOn::Timeout, passing(ErrorCause::Timeout)),
            (RetryOn::Unreachable, passing(ErrorCause::Unreachable)),
        ];
        for (on, failure) in &failures {
            for (other, _) in &failures {
                assert_eq!(retry(&[*other]).pause(1, &[failure]).is_some(), on == other);
            }
        }
        let all: Vec<RetryOn> = failures.iter().map(|(on, _)| *on).collect();
        for failure in [
            GatewayError::upstream(400, "no"),
            GatewayError::upstream(401, "no"),
            GatewayError::new(Code::BudgetExceeded, "pay"),
            GatewayError::new(Code::InternalError, "empty"),
        ] {
            assert_eq!(retry(&all).pause(1, &[&failure]), None, "{failure}");
        }
    }

    #[test]
    fn a_provider_is_not_asked_before_the_time_it_names() {
        let retry = retry(&[RetryOn::RateLimited]);
        let pause = |failed: &[&GatewayError]| retry.pause(1, failed).unwrap().as_millis();
        assert_eq!(pause(&[&busy(Some(2500))]), 2500);
        assert_eq!(
            pause(&[&busy(Some(10))]),
            100,
            "the file's pause is the least"
        );
        assert_eq!(pause(&[&busy(Some(2500)), &busy(Some(700))]), 700);
        assert_eq!(
            pause(&[&busy(Some(2500)), &GatewayError::upstream(500, "")]),
            2500
        );
    }

    #[test]
    fn the_time_is_read_in_seconds_as_a_date_and_in_milliseconds() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let told = |name: &'static str, value: &str| {
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static(name),
                axum::http::HeaderValue::from_str(value).unwrap(),
            )]);
            after(&headers, now).map(|wait| wait.as_millis())
        };
        for (value, milliseconds) in [
            ("120", Some(120_000)),
            ("0", Some(0)),
            ("1.5", Some(1500)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sunday, 06-Nov-94 08:50:07 GMT", Some(30_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
            ("1e300", None),
            ("", None),
        ] {
            assert_eq!(told("retry-after", value), milliseconds, "{value}");
        }
        assert_eq!(told("retry-after-ms", "250"), Some(250));
        assert_eq!(after(&HeaderMap::new(), now), None);
    }
}
