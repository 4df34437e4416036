//! One model call: requests it from the gateway until there is an answer, and makes an
//! `llm.response` of it.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use serde_json::json;
use tokio::sync::Semaphore;

use super::callbacks::{Backoff, UnreachableWarning};
use super::conversation::MAX_DEPTH;
use super::gateways::Gateways;
use ktsu_contract::gateway::{InvokeModel, ModelCallFailure, ModelReply, ToolCall};
use ktsu_contract::in_process::ModelGateway;
use ktsu_contract::report::{FailureDetails, LlmResponse};
use ktsu_peer::{Peer, PeerError};
use ktsu_server::body::deeper_than;

/// Calls to a gateway in another process under way at once: it bounds the sockets when thousands
/// of tasks wait, and leaves room under the gateway's own cap on connections.
const MAX_REMOTE_CALLS: usize = 256;

/// The code with which a gateway refuses a call that the next one will make.
const DRAINING: &str = "draining";

/// The gateway whom a runtime asks.
#[derive(Clone)]
pub enum GatewayLink {
    /// Of the same process: asked by values.
    InProcess(Arc<dyn ModelGateway>),
    /// Any other: asked by bytes.
    Peer(Peer),
    /// Several others, each of which may be asked.
    Peers(Vec<Peer>),
}

/// The gateways, and the places at them.
#[derive(Clone)]
pub struct ModelClient {
    route: ModelRoute,
    places: Option<Arc<Semaphore>>,
}

/// The way to a model.
#[derive(Clone)]
enum ModelRoute {
    InProcess(Arc<dyn ModelGateway>),
    ByBytes(Arc<Gateways>),
}

impl ModelClient {
    /// A client of a gateway.
    pub fn new(gateway: GatewayLink) -> Self {
        let by_bytes = |peers| {
            let gateways = Gateways::new(peers);
            let bound = || Arc::new(Semaphore::new(MAX_REMOTE_CALLS));
            let places = gateways.are_remote().then(bound);
            let route = ModelRoute::ByBytes(Arc::new(gateways));
            Self { route, places }
        };
        match gateway {
            GatewayLink::InProcess(gateway) => Self {
                route: ModelRoute::InProcess(gateway),
                places: None,
            },
            GatewayLink::Peer(peer) => by_bytes(vec![peer]),
            GatewayLink::Peers(peers) => by_bytes(peers),
        }
    }

    /// As tasks ask, for a caller that is no task.
    pub async fn ask_alone(&self, request: u64, key: &str, call: InvokeModel) -> LlmResponse {
        let silence = UnreachableWarning::default();
        self.ask(request, key, call, &silence).await
    }

    /// Asks. No answer at all is no reason to give up (decision W4), an error answer is final. The
    /// key names the call, so that a gateway that has answered it need not ask a provider again.
    pub(super) async fn ask(
        &self,
        request: u64,
        key: &str,
        call: InvokeModel,
        silence: &UnreachableWarning,
    ) -> LlmResponse {
        match &self.route {
            ModelRoute::InProcess(gateway) => {
                let started = Instant::now();
                let answer = gateway.invoke(call, key).await;
                let duration_ms = millis_since(started);
                match answer {
                    Ok(reply) => response(request, duration_ms, reply),
                    Err(refusal) => {
                        refused(request, duration_ms, refusal.status, Some(*refusal.body))
                    }
                }
            }
            ModelRoute::ByBytes(gateways) => {
                let json = match serde_json::to_vec(&call) {
                    Ok(json) => Bytes::from(json),
                    Err(error) => return failure(request, 0, unreadable(error.to_string(), false)),
                };
                self.ask_peers(gateways, request, key, &json, silence).await
            }
        }
    }

    /// Asks one gateway after the other, in rounds, until one answers.
    async fn ask_peers(
        &self,
        gateways: &Gateways,
        request: u64,
        key: &str,
        json: &Bytes,
        silence: &UnreachableWarning,
    ) -> LlmResponse {
        let mut backoff = Backoff::default();
        loop {
            // What something else answered in place of a gateway counts if no gateway answers.
            let mut foreign = None;
            for (index, gateway) in gateways.for_call(key) {
                match self.ask_peer(&gateway, request, key, json, silence).await {
                    GatewayAnswer::Own(answer) => {
                        gateways.answered(index);
                        return *answer;
                    }
                    GatewayAnswer::Foreign(answer) => foreign = Some(*answer),
                    GatewayAnswer::None => {}
                }
                gateways.is_away(index);
            }
            if let Some(answer) = foreign {
                return answer;
            }
            backoff.wait().await;
        }
    }

    /// Asks a gateway once.
    async fn ask_peer(
        &self,
        gateway: &Peer,
        request: u64,
        key: &str,
        json: &Bytes,
        silence: &UnreachableWarning,
    ) -> GatewayAnswer {
        let place = match &self.places {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        let started = Instant::now();
        let headers = [("idempotency-key", key)];
        let answer = gateway.post("/invoke", &headers, json.clone()).await;
        drop(place);
        let duration_ms = millis_since(started);
        match answer {
            Ok((200, body)) => match reply(request, duration_ms, &body) {
                Ok(answer) => GatewayAnswer::Own(Box::new(answer)),
                Err(answer) => GatewayAnswer::Foreign(answer),
            },
            Ok((status, body)) => {
                let said: Option<ModelCallFailure> = serde_json::from_slice(&body).ok();
                let code = said.as_ref().map(|said| said.error.as_str());
                let code = code.unwrap_or_default().to_owned();
                if code != DRAINING {
                    let answer = Box::new(refused(request, duration_ms, status, said));
                    return match code.is_empty() {
                        true => GatewayAnswer::Foreign(answer),
                        false => GatewayAnswer::Own(answer),
                    };
                }
                tracing::debug!(
                    key,
                    "the gateway is about to stop: waiting for the next one"
                );
                GatewayAnswer::None
            }
            Err(error @ PeerError::InvalidUrl(_)) => {
                let error = unreadable(error.to_string(), false);
                GatewayAnswer::Own(Box::new(failure(request, duration_ms, error)))
            }
            Err(error @ PeerError::NoResponse { .. }) => {
                silence.warn_once("the gateway", error.url(), &error);
                tracing::debug!(%error, key, "retrying a model call");
                GatewayAnswer::None
            }
        }
    }
}

fn millis_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// What a gateway, or something in its place, answers to a call.
enum GatewayAnswer {
    /// A reply or an error of a gateway.
    Own(Box<LlmResponse>),
    /// Something that no gateway says, as the error that it is if no other gateway answers.
    Foreign(Box<LlmResponse>),
    /// Nothing, or that it is about to stop.
    None,
}

/// A reply of a gateway, or the error that something else is.
fn reply(request: u64, duration_ms: u64, body: &[u8]) -> Result<LlmResponse, Box<LlmResponse>> {
    match serde_json::from_slice(body) {
        Ok(reply) => Ok(response(request, duration_ms, reply)),
        Err(error) => {
            let words = format!("the gateway's reply cannot be read: {error}");
            let answer = failure(request, duration_ms, unreadable(words, true));
            Err(Box::new(answer))
        }
    }
}

fn response(request: u64, duration_ms: u64, reply: ModelReply) -> LlmResponse {
    let tool_calls = reply.tool_calls.into_iter().map(shallow).collect();
    let (provider, model) = reply
        .model_resolved
        .split_once('/')
        .unwrap_or(("", &reply.model_resolved));
    LlmResponse {
        request,
        model: model.to_owned(),
        provider: provider.to_owned(),
        tokens_in: reply.tokens_in,
        tokens_out: reply.tokens_out,
        cost_micro_usd: reply
            .cost_micro_usd
            .unwrap_or_else(|| micro_usd(reply.cost_usd)),
        prices: reply.prices.unwrap_or_default(),
        duration_ms,
        cached: reply.cached,
        tool_calls,
        tokens_cached: reply.tokens_cached,
        tokens_reasoning: reply.tokens_reasoning,
        attempts: reply.attempts,
        unpriced: reply.unpriced,
        content: Some(reply.content),
        error: None,
    }
}

/// A call that a report can carry: arguments that are nested too deep for a frame are told as text,
/// which no tool takes.
fn shallow(mut call: ToolCall) -> ToolCall {
    if deeper_than(&call.arguments, MAX_DEPTH) {
        call.arguments = json!({"_raw": call.arguments.to_string()});
    }
    call
}

/// Rounded half up (decision E3); what is no amount costs nothing.
fn micro_usd(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}

/// There is no reply, and what the call used counts all the same (decision F4).
fn refused(
    request: u64,
    duration_ms: u64,
    status: u16,
    said: Option<ModelCallFailure>,
) -> LlmResponse {
    let Some(said) = said.filter(|said| !said.error.is_empty()) else {
        let words = format!("the gateway answered {status} without an error code");
        return failure(request, duration_ms, unreadable(words, status >= 500));
    };
    let error = FailureDetails {
        code: said.error,
        message: said.message,
        retryable: said.retryable,
    };
    LlmResponse {
        tokens_in: said.tokens_in,
        tokens_out: said.tokens_out,
        tokens_cached: said.tokens_cached,
        tokens_reasoning: said.tokens_reasoning,
        cost_micro_usd: said.cost_micro_usd,
        prices: said.prices.unwrap_or_default(),
        attempts: said.attempts,
        ..failure(request, duration_ms, error)
    }
}

/// The reply of a gateway that asked a model without a price where it was told not to: what it used
/// counts, and what it says does not.
pub(super) fn priced(response: LlmResponse) -> LlmResponse {
    if !response.unpriced || response.error.is_some() {
        return response;
    }
    let model = format!("{}/{}", response.provider, response.model);
    let message = format!("{model} has no price, and the run has a budget");
    let code = "budget_unpriced".to_owned();
    LlmResponse {
        content: None,
        tool_calls: Vec::new(),
        error: Some(FailureDetails {
            code,
            message,
            retryable: false,
        }),
        ..response
    }
}

fn unreadable(message: String, retryable: bool) -> FailureDetails {
    FailureDetails {
        code: "internal_error".to_owned(),
        message,
        retryable,
    }
}

fn failure(request: u64, duration_ms: u64, error: FailureDetails) -> LlmResponse {
    LlmResponse {
        request,
        duration_ms,
        error: Some(error),
        ..LlmResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_in_dollars_is_rounded_half_up_to_millionths() {
        for (usd, micro) in [
            (0.0, 0),
            (0.000_000_4, 0),
            (0.000_000_5, 1),
            (0.001_234_5, 1235),
            (2.0, 2_000_000),
            (-1.0, 0),
            (f64::NAN, 0),
        ] {
            assert_eq!(micro_usd(usd), micro, "{usd}");
        }
    }

    #[test]
    fn the_gateways_own_figure_and_names_are_taken_over() {
        let body =
            br#"{"content":"hi","model_resolved":"openai/gpt/x","tokens_in":3,"tokens_out":4,
                        "cost_usd":9.0,"cost_micro_usd":7,"prices":"p1","cached":true}"#;
        let response = reply(12, 5, body).unwrap();
        let expected = LlmResponse {
            request: 12,
            content: Some("hi".to_owned()),
            error: None,
            model: "gpt/x".to_owned(),
            provider: "openai".to_owned(),
            tokens_in: 3,
            tokens_out: 4,
            cost_micro_usd: 7,
            prices: "p1".to_owned(),
            duration_ms: 5,
            cached: true,
            ..LlmResponse::default()
        };
        assert_eq!(response, expected);
    }

    #[test]
    fn an_answer_without_an_error_code_is_an_error_of_ours() {
        for (status, body, retryable) in [(502, "<html>", true), (404, "{\"error\":\"\"}", false)] {
            let said = serde_json::from_str(body).ok();
            let error = refused(1, 2, status, said).error.unwrap();
            assert_eq!(error.code, "internal_error");
            assert_eq!(error.retryable, retryable);
            assert!(
                error.message.contains(&status.to_string()),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn what_a_call_without_a_reply_used_is_taken_over_with_its_attempts() {
        let body = br#"{"error":"internal_error","message":"m","tokens_in":5,"tokens_out":6,
            "tokens_cached":1,"tokens_reasoning":2,"cost_micro_usd":7,"prices":"p1","attempts":[
            {"model":"p/m","status":"internal_error","duration_ms":3,
             "usage":{"tokens_in":5,"tokens_out":6,"cost_micro_usd":7}}]}"#;
        let response = refused(12, 9, 500, serde_json::from_slice(body).ok());
        assert_eq!(response.error.unwrap().code, "internal_error");
        let used = (response.tokens_in, response.tokens_out);
        assert_eq!((used, response.cost_micro_usd), ((5, 6), 7));
        let more = (response.tokens_cached, response.tokens_reasoning);
        assert_eq!((more, response.prices.as_str()), ((1, 2), "p1"));
        assert_eq!(response.attempts[0].usage.tokens_out, 6);
        assert_eq!((response.request, response.content), (12, None));
    }

    #[test]
    fn a_reply_without_a_price_under_a_budget_is_no_reply_and_counts() {
        let body = br#"{"content":"hi","model_resolved":"p/m","tokens_in":3,"unpriced":true}"#;
        let response = priced(reply(1, 2, body).unwrap());
        assert_eq!(response.error.unwrap().code, "budget_unpriced");
        assert_eq!((response.content, response.tokens_in), (None, 3));
    }

    #[tokio::test]
    async fn what_no_gateway_says_is_passed_over_for_a_gateway_and_otherwise_an_error() {
        let serve = async |status: u16, body: &'static str| {
            let status = axum::http::StatusCode::from_u16(status).unwrap();
            let router = axum::Router::new().fallback(async move || (status, body));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(async move { axum::serve(listener, router).await });
            Peer::remote(url, None)
        };
        let own =
            r#"{"content":"x","model_resolved":"p/m","tokens_in":1,"tokens_out":1,"cost_usd":0}"#;
        let own = serve(200, own).await;
        let call: InvokeModel =
            serde_json::from_value(json!({"group": "g", "messages": [], "max_tokens": 1})).unwrap();
        for (status, body) in [(503, "<h1>away</h1>"), (502, ""), (200, "<html>")] {
            let proxy = serve(status, body).await;
            let both = ModelClient::new(GatewayLink::Peers(vec![proxy.clone(), own.clone()]));
            // Whichever of them a key picks first.
            for key in 0..8 {
                let answer = both.ask_alone(1, &key.to_string(), call.clone()).await;
                assert_eq!(answer.error, None, "{status} {body}");
            }
            let alone = ModelClient::new(GatewayLink::Peers(vec![proxy]));
            let answer = alone.ask_alone(1, "key", call.clone()).await;
            assert!(
                answer
                    .error
                    .is_some_and(|error| error.code == "internal_error")
            );
        }
    }
}
