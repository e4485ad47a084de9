#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/config/config.h"
#include "cli/config/toml.h"

namespace macaw::cli {

// Errors about what a configuration says: "PLACE: message". `place` is empty where no file was
// given.
absl::Status At(const Place& place, absl::string_view message);

// The same for a value or a name that is wrong. `meant`: the key or word that was probably meant;
// "": none.
absl::Status WrongKey(const Place& place, const std::string& key, const std::string& meant,
                      absl::string_view message);

// "; did you mean X?"; "" for "".
std::string DidYouMean(absl::string_view meant);

// The key or table `path` is none of the fields'. Names the nearest one.
absl::Status UnknownKey(const std::vector<Field>& fields, const std::string& path,
                        const Value& value);

// The choice that is most like the word that was given, or like the first wrong word of a list.
std::string WordMeant(const Field& field, const Value& value);

// The first text of a value that is not UTF-8, as an argument of the command line may be; "": none.
std::string NotUtf8In(const Value& value);

}  // namespace macaw::cli
