//! Where GitLab is, in each form in which people write it.

use reqwest::Url;

/// GitLab cannot be called with these options; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGitLabOptions {
    #[error(
        "GITLAB_URL is {given:?}, which is not an http or https URL; give the address of your GitLab, such as https://gitlab.example.com"
    )]
    BaseUrl { given: String },
    #[error("GITLAB_TOKEN is empty or has characters that cannot stand in a header; give a token with scope `api`")]
    Token,
}

pub(super) fn base_url(given: &str) -> Result<Url, BadGitLabOptions> {
    let bad = || BadGitLabOptions::BaseUrl { given: given.to_owned() };
    let trimmed = given.trim().trim_end_matches('/').trim_end_matches("/api/v4");
    let url = Url::parse(&format!("{trimmed}/")).map_err(|_| bad())?;
    let usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none();
    if usable { Ok(url) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_base_url_is_taken_in_each_form_people_write() {
        for given in ["https://h.example", "https://h.example/", " https://h.example/api/v4/ "] {
            assert_eq!(base_url(given).unwrap().as_str(), "https://h.example/");
        }
        assert_eq!(base_url("http://127.0.0.1:80/git").unwrap().as_str(), "http://127.0.0.1/git/");
        for given in ["", "h.example", "ftp://h.example", "https://h.example/?x=1"] {
            assert!(base_url(given).is_err(), "{given}");
        }
    }
}
