//! The query of a request: every name known, none twice, every value bounded.

use std::str::FromStr;

use oncely::policy_file::parse_duration;

use super::problem::Problem;

/// Most parameters.
const PARAMETERS_MAX: usize = 32;
/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;
/// Longest name, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Parameters that nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(raw.unwrap_or("").as_bytes()) {
            if value.len() > VALUE_BYTES_MAX || name.len() > VALUE_BYTES_MAX || pairs.len() >= PARAMETERS_MAX
            {
                return Err(Problem::bad_request("the query is too long"));
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(Problem::bad_request(format!("the query names {name:?} twice")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// A text; an empty one counts as wrong.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let Some(at) = self.0.iter().position(|(known, _)| known == name) else { return Ok(None) };
        match self.0.swap_remove(at).1 {
            value if value.is_empty() => Err(Problem::bad_request(format!("{name} is empty"))),
            value => Ok(Some(value)),
        }
    }

    /// A text as long as a name may be.
    pub(super) fn name(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.text(name)? {
            Some(value) if value.chars().count() > NAME_CHARS_MAX => {
                Err(Problem::bad_request(format!("{name} has more than {NAME_CHARS_MAX} characters")))
            }
            value => Ok(value),
        }
    }

    /// Something that can be read from a text.
    pub(super) fn parsed<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Problem>
    where
        T::Err: std::fmt::Display,
    {
        let Some(value) = self.text(name)? else { return Ok(None) };
        value.parse().map(Some).map_err(|error| Problem::bad_request(format!("{name}: {error}")))
    }

    /// A number within bounds.
    pub(super) fn number(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        let Some(value) = self.text(name)? else { return Ok(None) };
        // No sign and no blanks, which `parse` would let through.
        let number = value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse().ok()).flatten();
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(Problem::bad_request(format!("{name} must be a number from {least} to {most}"))),
        }
    }

    /// A duration such as `10m`, in milliseconds.
    pub(super) fn duration(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.text(name)? else { return Ok(None) };
        parse_duration(&value).map(Some).map_err(|error| Problem::bad_request(format!("{name}: {error}")))
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::bad_request(format!("the query may not have {name:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Query;

    #[test]
    fn what_is_not_known_twice_or_out_of_bounds_is_refused() {
        let take = |raw: &str| {
            let mut query = Query::parse(Some(raw))?;
            let number = query.number("limit", 1, 10)?;
            query.finish()?;
            Ok::<_, super::Problem>(number)
        };
        assert_eq!(take("").unwrap(), None);
        assert_eq!(take("limit=10").unwrap(), Some(10));
        for raw in [
            "limit=0",
            "limit=11",
            "limit=",
            "limit=+1",
            "limit=1&limit=2",
            "other=1",
            "limit=99999999999999999999",
        ] {
            assert!(take(raw).is_err(), "{raw}");
        }
        assert!(Query::parse(Some(&format!("a={}", "x".repeat(2_000)))).is_err());
    }
}
