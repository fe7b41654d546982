//! Whether the API server still accepts the credentials of this process.
//!
//! A client certificate or a token in a kubeconfig is read at the start and expires one day. The process then
//! ends, and whatever started it starts it again with what the kubeconfig holds now. Otherwise it would retry
//! without end, and its health checks would pass.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;

/// How long every answer must be a rejection. Longer than a lease lasts by default: another replica leads by then, if
/// one can.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the answers of the API server say about the credentials.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials(Arc<Mutex<Option<Instant>>>);

impl Credentials {
    /// Takes note of an answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        let mut rejected_since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if status == StatusCode::UNAUTHORIZED {
            rejected_since.get_or_insert_with(Instant::now);
        } else {
            *rejected_since = None;
        }
    }

    /// Returns when the API server has rejected the credentials in every answer for some time.
    pub(crate) async fn expired(&self) {
        loop {
            let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let end = since.unwrap_or_else(Instant::now) + PATIENCE;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn credentials_are_expired_after_thirty_seconds_of_rejections() {
        let credentials = Credentials::default();
        let expired = credentials.clone();
        let waiting = tokio::spawn(async move { expired.expired().await });
        let started = Instant::now();
        for second in 0..200_u64 {
            // One answer of another kind in between.
            let status = if second == 75 { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            tokio::time::sleep_until(started + Duration::from_secs(second)).await;
            if second >= 50 {
                credentials.answered(status);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(waiting.is_finished(), second >= 106, "after {second} s");
        }
    }
}
