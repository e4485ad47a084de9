#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw {

// Texts that users give are UTF-8: their words go into files (config.toml, JSON), which must stay
// readable. Thread-safe.

// Where the first byte of `text` is that is not UTF-8 (RFC 3629: shortest forms, no surrogates,
// nothing above U+10FFFF); npos: there is none.
size_t FirstNotUtf8(absl::string_view text);
inline bool IsUtf8(absl::string_view text) { return FirstNotUtf8(text) == absl::string_view::npos; }

// The text for a message of one line, in UTF-8 whatever it holds: quotation marks, backslashes and
// control characters are escaped as in C, and bytes that are not UTF-8 as "\xe9".
std::string EscapeToUtf8(absl::string_view text);

// At most `bytes` from the beginning or the end of a text, without half a character.
absl::string_view HeadOf(absl::string_view text, size_t bytes);
absl::string_view TailOf(absl::string_view text, size_t bytes);

// "the word "\xe9t" is not UTF-8; convert FILE with iconv …". `what` names the word.
absl::Status RefuseNotUtf8(absl::string_view what, absl::string_view word, const std::string& file);

// What to do with a file that is in another encoding: "convert it: iconv -f LATIN1 …". A guess, as
// nothing in such a file says which it is.
std::string HowToConvert(const std::string& file, absl::string_view encoding = "LATIN1");

// The text behind the byte order mark that some spreadsheets and editors write in front of UTF-8;
// the text itself, if there is none.
absl::string_view WithoutByteOrderMark(absl::string_view text);

// The encoding of a text with two or four bytes a character, by its byte order mark or by its zero
// bytes, as iconv calls it: "UTF-16LE". Empty: it is not such a text.
std::string WideEncoding(absl::string_view bytes);

// Refuses what no reader of text reads, with the file and what to do: UTF-16 and UTF-32, and zero
// bytes, which no text has. Does not look for bytes that are not UTF-8: numbers are the same in
// other encodings, and words are checked where they are read.
absl::Status CheckPlainText(absl::string_view bytes, const std::string& file);

// Refuses also the first byte that is not UTF-8, with its line. For texts that are UTF-8 by their
// definition: JSON, TOML.
absl::Status CheckUtf8(absl::string_view text, const std::string& file);

}  // namespace macaw
