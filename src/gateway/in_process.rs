//! `POST /invoke` for a runtime of the same process.

use super::error::{Code, GatewayError};
use super::http::MAX_BODY;
use super::{Gateway, digest, identity};
use ktsu_contract::gateway::{InvokeModel, ModelCallFailure, ModelReply};
use ktsu_contract::in_process::{ErrorResponse, ModelGateway, ServiceFuture};

impl ModelGateway for Gateway {
    fn invoke<'a>(
        &'a self,
        mut call: InvokeModel,
        key: &'a str,
    ) -> ServiceFuture<'a, Result<ModelReply, ErrorResponse<Box<ModelCallFailure>>>> {
        Box::pin(async move {
            self.check(&mut call).map_err(refusal)?;
            let identity = identity(key, &mut call);
            if identity.len() > MAX_BODY {
                return Err(too_large());
            }
            let asked = self.ask_once(digest(&identity), call).await;
            asked.map_err(refusal)
        })
    }
}

fn refusal(failure: GatewayError) -> ErrorResponse<Box<ModelCallFailure>> {
    ErrorResponse {
        status: failure.code.status(),
        body: Box::new(failure.body()),
    }
}

/// As a socket refuses it, before it is read.
fn too_large() -> ErrorResponse<Box<ModelCallFailure>> {
    let words = format!("a body may have at most {MAX_BODY} bytes");
    ErrorResponse {
        status: 413,
        ..refusal(GatewayError::new(Code::InvalidRequest, words))
    }
}
