//! Parses the text of one column: numbers, `bool`, `char`, strings, moments, and options of such.
//!
//! Integers of up to eight digits and moments to the minute are parsed as words, without a branch on their length: the
//! lengths in a file are what no branch predictor guesses. What is longer goes through the standard library.

use crate::clock::EpochMillis;
use crate::record::{Data, words16};

/// A type that a column of a CSV file can be.
#[diagnostic::on_unimplemented(
    message = "a column of a CSV file can't be a `{Self}`",
    note = "columns are numbers, `bool`, `char`, `String`, `EpochMillis`, and `Option` of such"
)]
pub trait CsvField: Data {
    /// Parses the text of a column, without its quotes.
    ///
    /// # Errors
    /// Says what the text should be.
    fn parse(text: &str) -> Result<Self::Ref<'_>, Malformed>;
}

/// The text of a column is not what its type needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// What the text should be, for example "an integer".
    pub expected: &'static str,
}

impl Malformed {
    /// The column should be `expected`, for example "an integer".
    pub const fn expected(expected: &'static str) -> Self {
        Self { expected }
    }
}

macro_rules! integer {
    ($($type:ty: $digits:expr, $expected:expr;)*) => {$(
        impl CsvField for $type {
            #[inline]
            fn parse(text: &str) -> Result<$type, Malformed> {
                let short = match text.strip_prefix('-') {
                    Some(digits) if <$type>::MIN != 0 => {
                        short_integer(digits, $digits).map(|value| (value as $type).wrapping_neg())
                    }
                    Some(_) | None => short_integer(text, $digits).map(|value| value as $type),
                };
                match short {
                    Some(value) => Ok(value),
                    None => text.parse().map_err(|_| Malformed::expected($expected)),
                }
            }
        }
    )*};
}
// So many digits can't overflow the type.
integer! {
    u8: 2, "an integer from 0 to 255";
    u16: 4, "an integer from 0 to 65535";
    u32: 8, "an unsigned integer";
    u64: 8, "an unsigned integer";
    i8: 2, "an integer from -128 to 127";
    i16: 4, "an integer from -32768 to 32767";
    i32: 8, "an integer";
    i64: 8, "an integer";
}

/// The value of one to `digits_max` (at most eight) digits.
#[inline(always)]
fn short_integer(text: &str, digits_max: usize) -> Option<u32> {
    let n = text.len();
    if n == 0 || n > digits_max {
        return None;
    }
    let (bytes, _) = words16(text.as_bytes());
    // The number's last digit comes to the top, and zeros stand before its first.
    let zeros = ZEROS & ((1 << (64 - 8 * n)) - 1);
    let digits = ((bytes << (64 - 8 * n)) | zeros) ^ ZEROS;
    digits_only(digits).then(|| eight_digits(digits))
}

/// Eight characters '0'.
const ZEROS: u64 = u64::from_le_bytes(*b"00000000");

/// Whether every byte is 0 to 9.
#[inline(always)]
fn digits_only(digits: u64) -> bool {
    const SIX: u64 = 0x0606_0606_0606_0606;
    const HIGH: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    // A byte above 0xF9 overflows into its neighbour, but is seen to be wrong itself.
    (digits | digits.wrapping_add(SIX)) & HIGH == 0
}

/// The number of eight digits, the first in the lowest byte: pairs, then fours, then all.
#[inline(always)]
fn eight_digits(digits: u64) -> u32 {
    const PAIRS: u64 = 0x00FF_00FF_00FF_00FF;
    const FOURS: u64 = 0x0000_FFFF_0000_FFFF;
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & PAIRS;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & FOURS;
    (fours.wrapping_mul(10_000 << 32 | 1) >> 32) as u32
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl CsvField for $type {
            #[inline]
            fn parse(text: &str) -> Result<$type, Malformed> {
                text.parse().map_err(|_| Malformed::expected("a number"))
            }
        }
    )*};
}
float!(f32, f64);

impl CsvField for bool {
    #[inline]
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            "1" => Ok(true),
            "0" => Ok(false),
            _ if text.eq_ignore_ascii_case("true") => Ok(true),
            _ if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(Malformed::expected("true or false")),
        }
    }
}

impl CsvField for char {
    #[inline]
    fn parse(text: &str) -> Result<Self, Malformed> {
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(Malformed::expected("one character")),
        }
    }
}

impl CsvField for String {
    #[inline(always)]
    fn parse(text: &str) -> Result<&str, Malformed> {
        Ok(text)
    }
}

/// An empty column is `None`.
impl<T: CsvField> CsvField for Option<T> {
    #[inline(always)]
    fn parse(text: &str) -> Result<Self::Ref<'_>, Malformed> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }
}

/// `YYYY-MM-DD`, then perhaps `T` or a space and `HH:MM`, `:SS` and `.f` to nine digits, and `Z`; in UTC. Or whole
/// milliseconds since 1970.
impl CsvField for EpochMillis {
    #[inline]
    fn parse(text: &str) -> Result<Self, Malformed> {
        const EXPECTED: Malformed =
            Malformed::expected("a moment like 2001-01-31T23:59:59.999 or milliseconds since 1970");
        if text.as_bytes().get(4) == Some(&b'-') && text.len() >= 10 {
            moment(text.as_bytes()).ok_or(EXPECTED)
        } else {
            i64::parse(text).map(Self).map_err(|_| EXPECTED)
        }
    }
}

/// A moment of at least ten bytes.
#[inline(always)]
fn moment(text: &[u8]) -> Option<EpochMillis> {
    const TIME: u64 = u64::from_le_bytes(*b"00T00:00");
    let (date, time) = words16(text);
    let time = match text.len() {
        // A date alone is its midnight.
        10 => time | (TIME & !0xFFFF),
        16.. => time,
        _ => return None,
    };
    // A space is as good as a T.
    let time = if time >> 16 & 0xFF == u64::from(b' ') { time ^ 0x74_0000 } else { time };
    let date = date ^ u64::from_le_bytes(*b"0000-00-");
    let time = time ^ TIME;
    // The separators are zero bytes by this, so one test checks them and the digits.
    const SEPARATORS: (u64, u64) = (0xFF00_00FF_0000_0000, 0x0000_FF00_00FF_0000);
    if (date & SEPARATORS.0) | (time & SEPARATORS.1) != 0
        || !digits_only(date)
        || !digits_only(time)
    {
        return None;
    }
    let two = |word: u64, at: u32| {
        let tens = word >> (8 * at) & 0xFF;
        (tens * 10 + (word >> (8 * at + 8) & 0xFF)) as i64
    };
    let (year, month, day) = (two(date, 0) * 100 + two(date, 2), two(date, 5), two(time, 0));
    let (hour, minute) = (two(time, 3), two(time, 6));
    if hour > 23 || minute > 59 || day < 1 || day > days_of_month(year, month)? {
        return None;
    }
    let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute;
    let behind = if text.len() > 16 { millis_of_minute(&text[16..])? } else { 0 };
    Some(EpochMillis(minutes * 60_000 + behind))
}

/// Days of a month; none if there is no such month.
#[inline(always)]
fn days_of_month(year: i64, month: i64) -> Option<i64> {
    const DAYS: [u8; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = *DAYS.get(usize::try_from(month).ok()?)?;
    Some(i64::from(days) + i64::from(month == 2 && is_leap))
}

/// Days from 1970-01-01, in years that begin in March, so that the leap day is a year's last.
#[inline(always)]
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    /// Days before each month in a year from March on, by the usual number of the month.
    const BEFORE: [i16; 13] = [0, 306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275];
    /// Days from 0000-03-01 to 1970-01-01.
    const TO_1970: i64 = 719_468;
    // 400 years more make the year of January 0000 positive; they are 146,097 days.
    let year = year + 400 - i64::from(month <= 2);
    let days = year * 365 + year / 4 - year / 100 + year / 400;
    days - 146_097 + i64::from(BEFORE[month as usize]) + day - 1 - TO_1970
}

/// `:SS`, perhaps a fraction, perhaps `Z`; or `Z` alone.
fn millis_of_minute(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    let [b':', tens @ b'0'..=b'5', ones @ b'0'..=b'9', fraction @ ..] = text else {
        return text.is_empty().then_some(0);
    };
    let seconds = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let millis = match fraction {
        [] => 0,
        [b'.', digits @ ..]
            if matches!(digits.len(), 1..=9) && digits.iter().all(u8::is_ascii_digit) =>
        {
            let digit = |at: usize| digits.get(at).map_or(0, |digit| i64::from(digit - b'0'));
            digit(0) * 100 + digit(1) * 10 + digit(2)
        }
        [..] => return None,
    };
    Some(seconds * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_agree_with_the_standard_library() {
        let texts = [
            "0",
            "7",
            "42",
            "007",
            "-0",
            "-3",
            "+5",
            "",
            "-",
            "+",
            "--1",
            "1-",
            " 1",
            "1 ",
            "12a",
            "/1",
            ":1",
            "99",
            "100",
            "127",
            "128",
            "-128",
            "-129",
            "255",
            "256",
            "9999",
            "10000",
            "32767",
            "-32768",
            "65535",
            "65536",
            "12345678",
            "123456789",
            "-99999999",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775808",
            "١",
            "1\u{b9}",
        ];
        for text in texts {
            assert_eq!(u8::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(i8::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(u16::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(i16::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(u32::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(i32::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(u64::parse(text).ok(), text.parse().ok(), "{text:?}");
            assert_eq!(i64::parse(text).ok(), text.parse().ok(), "{text:?}");
        }
    }

    #[test]
    fn every_byte_in_a_number_is_taken_as_the_standard_library_takes_it() {
        for code in 0..=u16::from(u8::MAX) {
            let character = char::from(code as u8);
            for text in
                [format!("{character}23"), format!("12{character}"), format!("1{character}3")]
            {
                assert_eq!(i32::parse(&text).ok(), text.parse().ok(), "{text:?}");
            }
        }
    }

    #[test]
    fn moments_are_parsed_to_the_millisecond() {
        for (text, millis) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00Z", 0),
            ("1969-12-31 23:59:59.999", -1),
            ("2001-01-01T00:01", 978_307_260_000),
            ("2000-02-29T12:34:56.7", 951_827_696_700),
            ("2038-01-19T03:14:07.123456789Z", 2_147_483_647_123),
            ("0000-01-01", -62_167_219_200_000),
            ("9999-12-31T23:59:59", 253_402_300_799_000),
            ("978307260000", 978_307_260_000),
            ("-1", -1),
        ] {
            assert_eq!(EpochMillis::parse(text), Ok(EpochMillis(millis)), "{text}");
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut day = days_since_1970(0, 1, 1);
        for year in 0..=9999 {
            for month in 1..=12 {
                for date in 1..=days_of_month(year, month).expect("there is such a month") {
                    assert_eq!(days_since_1970(year, month, date), day, "{year}-{month}-{date}");
                    day += 1;
                }
            }
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2001-01-1",
            "2001-13-01",
            "2001-00-10",
            "2001-02-29",
            "1900-02-29",
            "2001-01-00",
            "2001-04-31",
            "2001-01-01T",
            "2001-01-01T00",
            "2001-01-01T24:00",
            "2001-01-01T00:60",
            "2001-01-01_00:00",
            "2001-01-01t00:00",
            "2001/01/01",
            "2001-01-01T00:00:60",
            "2001-01-01T00:00:0",
            "2001-01-01T00:00:00.",
            "2001-01-01T00:00:00.1234567890",
            "2001-01-01T00:00:00.1x",
            "2001-01-01T00:00+01",
            "2001-01-01Z",
            "200x-01-01",
            "2001-01-0:",
            "2001-01-01T00-00",
            "2001-ü01-1",
        ] {
            assert!(EpochMillis::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn other_types_are_parsed_whole() {
        assert_eq!((bool::parse("True"), bool::parse("0")), (Ok(true), Ok(false)));
        assert_eq!(bool::parse("yes"), Err(Malformed::expected("true or false")));
        assert_eq!(
            (char::parse("ß"), char::parse("").ok(), char::parse("ab").ok()),
            (Ok('ß'), None, None)
        );
        assert_eq!(f64::parse("-2.5e3"), Ok(-2500.0));
        assert!(f64::parse("2,5").is_err());
        assert_eq!(Option::<u8>::parse(""), Ok(None));
        assert_eq!(Option::<u8>::parse("3"), Ok(Some(3)));
        assert!(Option::<u8>::parse("x").is_err());
    }
}
