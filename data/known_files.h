#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace macaw::data {

// Well-known files that no reader reads: what such a file is, what of it is not read, and what to
// do. "" for any other file. `head`: the first bytes of a text.
std::string KnownFile(absl::string_view head);

// Whether a word is the name of a picture ("000001.jpg"), and what to say of it.
bool NamesAPicture(absl::string_view word);
inline constexpr char kPicturesAdvice[] =
    "Macaw reads no picture files: decode them in Python (Pillow), and write their pixels, labels "
    "and clients with numpy.savez as x, y and client (docs/guides/data.md, Pictures and texts)";
inline constexpr char kTextsAdvice[] =
    "Macaw reads no running text as features: turn texts into token numbers in Python, and write "
    "them, labels and clients with numpy.savez as x, y and client (docs/guides/data.md, "
    "Pictures and texts)";

}  // namespace macaw::data
