#include "cli/invite/named_clients.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/shell.h"
#include "core/status.h"
#include "core/utf8.h"
#include "proto/fleet/client_table.h"

namespace macaw::cli {

absl::StatusOr<std::vector<std::string>> ClientsNamed(absl::string_view role,
                                                      std::vector<std::string> listed,
                                                      const std::vector<std::string>& whole) {
  for (const std::string& client : listed) {
    const absl::string_view bare = absl::StripAsciiWhitespace(client);
    if (bare.size() == client.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the client \"", EscapeToUtf8(client), "\" has blanks around its name: --clients ",
        "takes names with commas alone between them, --client ", ForShell(EscapeToUtf8(client)),
        " takes one as it is"));
  }
  listed.insert(listed.end(), whole.begin(), whole.end());
  if (listed.empty() || listed == std::vector<std::string>{""}) return listed;
  if (role == "operator") {
    return absl::InvalidArgumentError(
        "an operator owns no clients: leave --clients and --client out");
  }
  std::vector<std::string> once;
  for (const std::string& client : listed) {
    if (!IsUtf8(client)) {
      return absl::InvalidArgumentError(absl::StrCat("the client \"", EscapeToUtf8(client),
                                                     "\" is not UTF-8: write its name in UTF-8"));
    }
    if (std::ranges::find(once, client) != once.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the client \"", client, "\" is named twice: name it once"));
    }
    once.push_back(client);
  }
  if (once.size() > 1 && std::ranges::find(once, "*") != once.end()) {
    return absl::InvalidArgumentError(
        "* is every client: name it alone, or leave it out and name the others");
  }
  MACAW_RETURN_IF_ERROR(fleet::CheckNames(once));
  return once;
}

}  // namespace macaw::cli
