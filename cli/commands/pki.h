#pragma once

#include <string>
#include <vector>

namespace macaw::cli {

// `macaw pki …`: the authority of a fleet, a folder (identity/authority.h). Each command prints to
// standard output, reports errors to standard error, and returns the exit code.
struct PkiInvite {
  std::string folder, name, role;
  std::vector<std::string> clients;  // "*": of any name; none: one client of the node's name
  std::string lifetime, open_for;    // "30d", "12h"; "": the defaults
};
int PkiInit(const std::string& folder, const std::string& name);
int PkiInviteNode(const PkiInvite& invite);
int PkiList(const std::string& folder, bool json);
int PkiAssign(const std::string& folder, const std::string& name,
              const std::vector<std::string>& clients);
int PkiRevoke(const std::string& folder, const std::string& name, const std::string& why);

// Checks the chains of a registry or an audit log, or of both in an authority's folder. `head`: the
// digest that the last line must have; "": it is printed.
int AuditVerify(const std::string& path, const std::string& head);

}  // namespace macaw::cli
