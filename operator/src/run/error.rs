//! Errors of the client as text.

/// An error with its causes, without repetition.
///
/// For an answer of the API server this is its message alone: the error's own text would have the
/// whole status in it.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return status.message.clone();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_named_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let error = anyhow::Error::new(refused).context("cannot connect").context("no watch");
        assert_eq!(chain(&*error), "no watch: cannot connect: refused");
        let status = kube::core::Status { message: "no".to_owned(), code: 403, ..<_>::default() };
        assert_eq!(chain(&kube::Error::Api(Box::new(status))), "no");
    }
}
