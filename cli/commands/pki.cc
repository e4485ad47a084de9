#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/commands/commands.h"
#include "cli/invite/lifetimes.h"
#include "cli/invite/named_clients.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/spelling.h"
#include "core/status.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "identity/backup.h"
#include "identity/signed_head.h"

namespace macaw::cli {
namespace {

// Options of commands on a fleet's authority. The authority is a folder (identity/authority.h).
struct PkiInvite {
  std::string folder, name, role;
  std::vector<std::string> clients;  // "*": of any name; none: one client of the node's name
  std::vector<std::string> whole;    // of --client
  std::string lifetime, open_for;    // "30d", "12h"; "": the defaults
};

using identity::Authority;
using identity::NodeRecord;

std::string Words(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::UTCTimeZone());
}

// What the node can do at this moment.
std::string StateOf(const NodeRecord& node, absl::Time now) {
  std::vector<std::string> parts;
  if (node.revoked.has_value()) {
    parts.push_back(absl::StrCat("revoked", node.revoked->empty() ? "" : ": ", *node.revoked));
  } else if (!node.certificates.empty()) {
    const absl::Time until = node.certificates.back().until;
    parts.push_back(absl::StrCat(now < until ? "enrolled until " : "ran out ", Words(until)));
  }
  if (node.invite.has_value() && !node.invite->used) {
    parts.push_back(absl::StrCat(now < node.invite->until ? "invited until " : "invite ran out ",
                                 Words(node.invite->until)));
  }
  return absl::StrJoin(parts, ", ");
}

// What the node is, or will be when it uses its invite.
identity::Grant GrantOf(const std::string& name, const NodeRecord& node) {
  if (node.grant != nullptr) return *node.grant;
  if (node.invite.has_value()) return *node.invite->grant;
  return {.subject = {.name = name}};  // it was revoked before it enrolled
}

std::string ClientsOf(const identity::Grant& grant) {
  constexpr size_t kMost = 5;
  if (grant.owns_any) return "any";
  const auto as_word = [](std::string* out, const std::string& client) {
    absl::StrAppend(out, ForShell(client));  // names may have spaces and commas
  };
  if (grant.owns.size() <= kMost) return absl::StrJoin(grant.owns, " ", as_word);
  return absl::StrCat(absl::StrJoin(grant.owns.begin(), grant.owns.begin() + kMost, " ", as_word),
                      " … (", grant.owns.size(), ")");
}

absl::Status Invite(const PkiInvite& command) {
  MACAW_ASSIGN_OR_RETURN(const auto authority, Authority::Open(command.folder));
  identity::NewNode node;
  identity::Grant& grant = node.grant;
  grant.subject.name = command.name;
  MACAW_ASSIGN_OR_RETURN(grant.subject.role, identity::ParseRole(command.role));
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> clients,
                         ClientsNamed(command.role, command.clients, command.whole));
  SetClients(clients, grant);
  MACAW_ASSIGN_OR_RETURN(node.lifetime,
                         ParseLifetime("--lifetime", command.lifetime, node.lifetime));
  MACAW_ASSIGN_OR_RETURN(node.open_for,
                         ParseLifetime("--open-for", command.open_for, node.open_for));
  MACAW_ASSIGN_OR_RETURN(const std::string code, authority->InviteNode(node, absl::Now()));
  // The code alone is on standard output, for scripts.
  std::cout << code << std::endl;
  std::cerr << "good once, until " << Words(absl::Now() + node.open_for) << " UTC. On the "
            << command.role << ":\n  macaw-worker enrol --server HOST:PORT --identity FOLDER "
            << "CODE" << std::endl;
  return absl::OkStatus();
}

absl::Status List(const std::string& folder, bool json) {
  MACAW_ASSIGN_OR_RETURN(const auto authority, Authority::Open(folder));
  MACAW_ASSIGN_OR_RETURN(const auto nodes, authority->Nodes());
  const absl::Time now = absl::Now();
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [name, node] : nodes) {
      nlohmann::ordered_json entry;
      const identity::Grant grant = GrantOf(name, node);
      entry["name"] = name;
      entry["role"] = std::string(identity::Name(grant.subject.role));
      entry["state"] = StateOf(node, now);
      entry["revoked"] = node.revoked.has_value();
      entry["enrolled"] = !node.certificates.empty();
      entry["clients"] = grant.owns;
      entry["any_client"] = grant.owns_any;
      list.push_back(std::move(entry));
    }
    std::cout << list.dump(1) << std::endl;
    return absl::OkStatus();
  }
  std::cout << absl::StrFormat("%-24s %-9s %-34s %s\n", "node", "role", "state (UTC)", "clients");
  for (const auto& [name, node] : nodes) {
    const identity::Grant grant = GrantOf(name, node);
    std::cout << absl::StrFormat("%-24s %-9s %-34s %s\n", name, identity::Name(grant.subject.role),
                                 StateOf(node, now), ClientsOf(grant));
  }
  return absl::OkStatus();
}

// The certificate of the authority in whose folder the file is; absent: there is none.
absl::StatusOr<std::optional<identity::Certificate>> AuthorityBeside(const std::string& path) {
  const std::string file = (std::filesystem::path(path).parent_path() / "authority.crt").string();
  if (!FileExists(file)) return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(const std::string pem, ReadFile(file));
  MACAW_ASSIGN_OR_RETURN(identity::Certificate authority, identity::Certificate::FromPem(pem));
  return authority;
}

absl::Status VerifyFile(const std::string& path, const std::string& head) {
  if (!FileExists(path)) return MissingFile(path, absl::StrCat("there is no ", path));
  MACAW_ASSIGN_OR_RETURN(const auto authority, AuthorityBeside(path));
  std::optional<identity::SignedHead> is_signed;
  if (authority.has_value()) {
    MACAW_ASSIGN_OR_RETURN(is_signed, identity::ReadSignedHead(path, *authority));
  }
  MACAW_ASSIGN_OR_RETURN(auto log, identity::ChainedLog::Open(path));
  MACAW_RETURN_IF_ERROR(log.ReadOn([&](const identity::LogEntry& entry) {
    if (!is_signed.has_value() || entry.number != is_signed->lines ||
        entry.line == is_signed->head) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        path, ", line ", entry.number, ": is not the line that was signed: the file was changed"));
  }));
  if (authority.has_value() && !is_signed.has_value() && log.lines() > 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": its signed head, ", path, identity::kHeadSuffix,
                     ", is missing, so nobody can tell whether lines were cut off its end"));
  }
  if (is_signed.has_value() && log.lines() < is_signed->lines) {
    return absl::DataLossError(absl::StrCat(path, ": has ", log.lines(), " lines, and ",
                                            is_signed->lines,
                                            " were signed: lines were cut off its end"));
  }
  if (!head.empty() && head != log.head().Hex()) {
    return absl::DataLossError(absl::StrCat(
        path, ": its last line is not the one that --head names: lines were added or cut off"));
  }
  std::cout << path << ": " << log.lines() << " lines, unbroken, ";
  if (is_signed.has_value()) std::cout << is_signed->lines << " of them signed, ";
  std::cout << "head " << log.head().Hex() << std::endl;
  return absl::OkStatus();
}

absl::Status Verify(const std::string& path, const std::string& head) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(path, unreadable)) return VerifyFile(path, head);
  if (!head.empty())
    return absl::InvalidArgumentError("--head is of one file: name registry.jsonl or audit.jsonl");
  MACAW_RETURN_IF_ERROR(VerifyFile(path + "/registry.jsonl", ""));
  const std::string audit = path + "/audit.jsonl";  // there once a server has run
  if (FileExists(audit) || FileExists(audit + identity::kHeadSuffix))
    MACAW_RETURN_IF_ERROR(VerifyFile(audit, ""));
  for (int number = 1; number < identity::Audit::kFiles; ++number) {
    const std::string older = absl::StrCat(path, "/audit.", number, ".jsonl");
    if (FileExists(older)) MACAW_RETURN_IF_ERROR(VerifyFile(older, ""));
  }
  return absl::OkStatus();
}

int PkiInit(const std::string& folder, const std::string& name) {
  const absl::Status status = Authority::Create(folder, name, absl::Now());
  if (!status.ok()) return Report(status);
  std::cout << "made the authority \"" << name << "\" in " << folder
            << ". Its key must not get lost or out.\n"
            << "serve    macaw-server --config RUN.toml --run-dir DIR --listen 0.0.0.0:47100 "
            << "--authority " << ForShell(folder) << "\n"
            << "invite   macaw pki invite --dir " << ForShell(folder) << " NAME" << std::endl;
  return kExitOk;
}

int PkiInviteNode(const PkiInvite& invite) { return Report(Invite(invite)); }

int PkiList(const std::string& folder, bool json) { return Report(List(folder, json)); }

int PkiAssign(const std::string& folder, const std::string& name,
              const std::vector<std::string>& listed, const std::vector<std::string>& whole) {
  const auto assign = [&]() -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const auto authority, Authority::Open(folder));
    identity::Grant grant;
    MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> clients,
                           ClientsNamed(/*role=*/"", listed, whole));
    SetClients(clients, grant);
    return authority->Assign(name, grant.owns, grant.owns_any, absl::Now());
  };
  return Report(assign());
}

int PkiRevoke(const std::string& folder, const std::string& name, const std::string& why) {
  const auto revoke = [&]() -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const auto authority, Authority::Open(folder));
    return authority->Revoke(name, why, absl::Now());
  };
  return Report(revoke());
}

int PkiBackup(const std::string& folder, const std::string& to) {
  const absl::StatusOr<uint64_t> nodes = identity::BackUp(folder, to);
  if (!nodes.ok()) return Report(nodes.status());
  std::cout << to << ": the authority of " << folder << " with " << Counted(*nodes, "node")
            << ". Whoever has it can sign for the fleet: keep it where the key is safe"
            << std::endl;
  return kExitOk;
}

int PkiRestore(const std::string& folder, const std::string& backup) {
  const absl::StatusOr<identity::Restoration> restored =
      identity::Restore(backup, folder, absl::Now());
  if (!restored.ok()) return Report(restored.status());
  std::cout << folder << ": the authority with " << Counted(restored->nodes, "node");
  if (!restored->revoked.empty())
    std::cout << "; revoked again: " << absl::StrJoin(restored->revoked, ", ");
  if (restored->lost > 0) {
    std::cout << "; " << Counted(restored->lost, "line")
              << " of the registry's end are lost, and with them what they revoked";
  }
  std::cout << "\nA node that enrolled since the backup needs a new invite; one that renewed since "
            << "comes back by itself. What was revoked since and is not named here: revoke it again"
            << std::endl;
  return kExitOk;
}

// Checks the chains of a registry or an audit log, or of both in an authority's folder. `head`: the
// digest that the last line must have; "": it is printed.
int AuditVerify(const std::string& path, const std::string& head) {
  return Report(Verify(path, head));
}

void AddClientOption(CLI::App* command, std::vector<std::string>& whole) {
  command
      ->add_option("--client", whole,
                   "One of its clients by its whole name, commas included; once for each, also "
                   "beside --clients")
      ->allow_extra_args(false);
}

}  // namespace

void AddPki(CLI::App& app, std::function<int()>& run) {
  CLI::App* pki = app.add_subcommand("pki", "The nodes of a fleet: invite, list, revoke, backup");
  pki->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* command = pki->add_subcommand(name, help);
    auto folder = std::make_shared<std::string>("pki");
    command->add_option("--dir", *folder, "The authority's folder")->capture_default_str();
    return std::pair(command, folder);
  };
  auto name = std::make_shared<std::string>(), why = std::make_shared<std::string>();
  const auto [init, init_folder] = add("init", "Make the authority of a new fleet");
  *name = "macaw";
  init->add_option("--name", *name, "Name of the fleet")->capture_default_str();
  init->final_callback(
      [=, folder = init_folder, &run] { run = [=] { return PkiInit(*folder, *name); }; });

  const auto [invite, invite_folder] = add("invite", "Print a code with which one node may enrol");
  auto options = std::make_shared<PkiInvite>();
  options->role = "device";
  invite->add_option("NAME", options->name, "The node's name, which never changes")->required();
  invite
      ->add_option("--role", options->role,
                   "device: trains its own clients alone; worker: also shared ones; operator")
      ->capture_default_str();
  invite
      ->add_option("--clients", options->clients,
                   "Names of the clients that it owns, with commas between them, or * (default: "
                   "one, named like the node)")
      ->delimiter(',');
  AddClientOption(invite, options->whole);
  invite->add_option(
      "--lifetime", options->lifetime,
      "Lifetime of its certificates, in seconds or with a unit: 12h, 90d (default: 30d)");
  invite->add_option(
      "--open-for", options->open_for,
      "How long the code is good, in seconds or with a unit: 30min, 12h, 7d (default: 1d)");
  invite->final_callback([=, folder = invite_folder, &run] {
    options->folder = *folder;
    run = [=] { return PkiInviteNode(*options); };
  });

  const auto [list, list_folder] = add("list", "The nodes, and what they may do");
  auto json = std::make_shared<bool>(false);
  list->add_flag("--json", *json, "As JSON");
  list->final_callback(
      [=, folder = list_folder, &run] { run = [=] { return PkiList(*folder, *json); }; });

  const auto [assign, assign_folder] = add("assign", "Give an enrolled node other clients");
  auto clients = std::make_shared<std::vector<std::string>>();
  auto assigned = std::make_shared<std::string>();
  assign->add_option("NAME", *assigned, "The node")->required();
  auto whole = std::make_shared<std::vector<std::string>>();
  CLI::Option_group* names = assign->add_option_group("clients");
  names
      ->add_option("--clients", *clients, "All that it owns from now on, with commas between, or *")
      ->delimiter(',');
  AddClientOption(names, *whole);
  names->require_option(1, 2);
  assign->final_callback([=, folder = assign_folder, &run] {
    run = [=] { return PkiAssign(*folder, *assigned, *clients, *whole); };
  });

  const auto [revoke, revoke_folder] = add("revoke", "Shut a node out, from its next call on");
  auto node = std::make_shared<std::string>();
  revoke->add_option("NAME", *node, "The node")->required();
  revoke->add_option("--why", *why, "For the registry; the node is told, too");
  revoke->final_callback(
      [=, folder = revoke_folder, &run] { run = [=] { return PkiRevoke(*folder, *node, *why); }; });

  const auto [backup, backup_folder] =
      add("backup", "Copy the authority into a new folder, also while servers run");
  auto to = std::make_shared<std::string>(), from = std::make_shared<std::string>();
  backup->add_option("FOLDER", *to, "Where the copy goes; it has the authority's key")->required();
  backup->final_callback(
      [=, folder = backup_folder, &run] { run = [=] { return PkiBackup(*folder, *to); }; });

  const auto [restore, restore_folder] =
      add("restore", "Put a backup back, also while servers run; no revocation is taken back");
  restore->add_option("FOLDER", *from, "The backup")->required();
  restore->final_callback(
      [=, folder = restore_folder, &run] { run = [=] { return PkiRestore(*folder, *from); }; });
}

void AddAudit(CLI::App& app, std::function<int()>& run) {
  CLI::App* audit =
      app.add_subcommand("audit", "Nodes that were let in, callers that were refused");
  audit->require_subcommand(1);
  CLI::App* verify = audit->add_subcommand("verify", "Check that no line was changed or taken out");
  auto path = std::make_shared<std::string>(), head = std::make_shared<std::string>();
  verify->add_option("PATH", *path, "An authority's folder, or one of its files")->required();
  verify->add_option("--head", *head, "What the digest of the last line must be");
  verify->final_callback([=, &run] { run = [=] { return AuditVerify(*path, *head); }; });
}

}  // namespace macaw::cli
