//! The one client time that is stored: an RFC 3339 moment, kept in UTC with microseconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// A moment given by a client, in UTC, truncated to microseconds (the database's precision).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(OffsetDateTime);

impl Moment {
    /// Reads RFC 3339 with an offset; years 1970 to 9999 (what DATETIME holds and a person means).
    pub fn parse(text: &str) -> Result<Self, String> {
        let moment = OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|why| format!("{text:?} is not an RFC 3339 date and time with an offset, such as 2027-01-31T09:00:00Z ({why})"))?
            .checked_to_offset(UtcOffset::UTC)
            .ok_or_else(|| format!("{text:?} lies outside the years 1970 to 9999"))?;
        if !(1970..=9999).contains(&moment.year()) {
            return Err(format!("{text:?} lies outside the years 1970 to 9999"));
        }
        let truncated = moment.replace_nanosecond(moment.microsecond() * 1000).map_err(|why| why.to_string())?;
        Ok(Self(truncated))
    }

    /// `2027-01-31 09:00:00.000000`, as a session with time_zone '+00:00' reads it.
    pub fn to_sql(self) -> String {
        let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:6]");
        self.0.format(&format).unwrap_or_default()
    }

    /// `2027-01-31T09:00:00.000000Z`.
    pub fn to_rfc3339(self) -> String {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
        self.0.format(&format).unwrap_or_default()
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_kept_in_utc_and_truncated() {
        let moment = Moment::parse("2027-01-31T23:59:59.9999999+09:00").expect("valid");
        assert_eq!(moment.to_sql(), "2027-01-31 14:59:59.999999");
        assert_eq!(moment.to_rfc3339(), "2027-01-31T14:59:59.999999Z");
        for bad in [
            "",
            "2027-01-31",
            "2027-01-31T09:00:00",
            "2027-13-01T00:00:00Z",
            "1969-12-31T00:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "tomorrow",
        ] {
            assert!(Moment::parse(bad).is_err(), "{bad}");
        }
    }
}
