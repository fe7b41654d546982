//! The pause that the API server asks for in the header `Retry-After`.
//!
//! Where requests wait in queues by flow (API Priority and Fairness), and while it starts or ends, the API
//! server answers 429 or 503 with this header and a text. kube's error has no header: the pause is put
//! into the `Status` in the body.

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};
use kube::core::{Status, response::StatusDetails};
use tower::BoxError;

/// The most bytes of a body with a reason.
const MAX_BODY: usize = 1 << 20;

/// A response whose body names the pause that a header asks for.
///
/// # Errors
///
/// If the rest of the body does not arrive, or is larger than a mebibyte.
pub async fn with_retry_after<B>(response: Response<B>) -> Result<Response<Body>, BoxError>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = response.into_parts();
    let body = Body::new(body);
    let Some(seconds) = seconds(parts.status, &parts.headers) else {
        return Ok(Response::from_parts(parts, body));
    };
    let text = to_bytes(body, MAX_BODY).await?;
    let mut status = serde_json::from_slice(&text).unwrap_or_else(|_| {
        let message = String::from_utf8_lossy(&text);
        let reason = parts.status.canonical_reason().unwrap_or_default();
        Status::failure(message.trim(), reason).with_code(parts.status.as_u16())
    });
    status.details.get_or_insert_with(no_details).retry_after_seconds = seconds;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Response::from_parts(parts, serde_json::to_vec(&status)?.into()))
}

/// The pause in whole seconds, the only form that the API server writes.
fn seconds(status: StatusCode, headers: &HeaderMap) -> Option<u32> {
    let may_pass = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    headers.get(RETRY_AFTER).filter(|_| may_pass)?.to_str().ok()?.parse().ok()
}

const fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}
