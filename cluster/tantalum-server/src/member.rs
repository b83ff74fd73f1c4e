//! What the cluster knows of a member: it stands in raft's membership, beside the member's number.

use serde::{Deserialize, Serialize};

/// A member, as `member list` shows it.
///
/// Stored as a text, as versions that knew one node stored theirs, so that their logs can be read.
///
/// ```
/// use tantalum_server::Member;
///
/// let member = Member { name: "a".to_owned(), peer_urls: vec!["http://10.0.0.1:2380".to_owned()], ..Member::default() };
/// assert_eq!(Member::try_from(String::from(member.clone())), Ok(member));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Member {
    /// Its name; empty until it was started.
    pub name: String,
    /// The URLs at which other members reach it.
    pub peer_urls: Vec<String>,
    /// The URLs at which clients reach it; empty until it was started.
    pub client_urls: Vec<String>,
    /// While it learns: whether it becomes a voter as soon as it has what the leader has.
    pub becomes_voter: bool,
}

/// What versions that knew one node stored.
const ONLY_MEMBER: &str = "localhost";

#[derive(Serialize, Deserialize)]
struct Fields {
    name: String,
    peer_urls: Vec<String>,
    client_urls: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    becomes_voter: bool,
}

impl From<Member> for String {
    fn from(member: Member) -> String {
        let Member { name, peer_urls, client_urls, becomes_voter } = member;
        serde_json::to_string(&Fields { name, peer_urls, client_urls, becomes_voter }).expect("texts and a boolean")
    }
}

impl TryFrom<String> for Member {
    type Error = String;

    fn try_from(text: String) -> Result<Member, String> {
        if text == ONLY_MEMBER {
            return Ok(Member::default());
        }
        let fields = serde_json::from_str(&text);
        let Fields { name, peer_urls, client_urls, becomes_voter } =
            fields.map_err(|error| format!("{text:?} describes no member: {error}"))?;
        Ok(Member { name, peer_urls, client_urls, becomes_voter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_earlier_versions_are_read_and_others_refused() {
        let stored = postcard::to_stdvec(&openraft::BasicNode::default()).expect("it has a text");
        assert_eq!(postcard::from_bytes(&stored), Ok(Member::default()));
        let member = Member { name: "a".to_owned(), becomes_voter: true, ..Member::default() };
        let stored = postcard::to_stdvec(&member).expect("it has a text");
        assert_eq!(postcard::from_bytes(&stored), Ok(member));
        let other = postcard::to_stdvec("elsewhere").expect("it is a text");
        assert!(postcard::from_bytes::<Member>(&other).is_err());
    }
}
