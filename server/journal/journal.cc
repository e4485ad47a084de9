#include "server/journal/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"
#include "server/journal/bytes.h"
#include "server/journal/frame_file.h"
#include "server/journal/holdings.h"

namespace macaw::server {

// What the journal keeps of a node and of a part. `access` is for conversions to protobuf.
constexpr auto FieldsOf(std::type_identity<JournalNode>) {
  return std::tuple(fleet::MakeField("node", &JournalNode::node, nullptr),
                    fleet::MakeField("session", &JournalNode::session, nullptr),
                    fleet::MakeField("request", &JournalNode::request, nullptr));
}
constexpr auto FieldsOf(std::type_identity<JournalPart>) {
  return std::tuple(fleet::MakeField("node", &JournalPart::node, nullptr),
                    fleet::MakeField("node_name", &JournalPart::node_name, nullptr),
                    fleet::MakeField("commit", &JournalPart::commit, nullptr),
                    fleet::MakeField("part", &JournalPart::part, nullptr));
}

namespace {

constexpr absl::string_view kPartsPrefix = "parts-";

std::string NodesPath(const std::string& folder) { return folder + "/nodes"; }
std::string SyncedPath(const std::string& folder) { return folder + "/synced"; }
std::string HoldingsPath(const std::string& run_dir) { return run_dir + "/holdings"; }
std::string PartsPath(const std::string& folder, Round from) {
  return absl::StrCat(folder, "/", kPartsPrefix, from.value);
}

// The files with parts, by their first round.
std::map<Round, std::string> PartsFiles(const std::string& folder) {
  std::map<Round, std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    uint32_t from = 0;
    if (absl::StartsWith(name, kPartsPrefix) &&
        absl::SimpleAtoi(absl::string_view(name).substr(kPartsPrefix.size()), &from)) {
      files[Round(from)] = entry.path().string();
    }
  }
  return files;
}

// ---- the size of the synced log: the number, then its complement

std::string EncodeSynced(uint64_t bytes) {
  ByteWriter out;
  out.Put(bytes);
  out.Put(~bytes);
  return std::move(out).Take();
}

uint64_t ReadSynced(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadFile(SyncedPath(folder));
  if (!text.ok()) return 0;
  ByteReader in(*text);
  const uint64_t bytes = in.Number();
  return EncodeSynced(bytes) == *text ? bytes : 0;
}

}  // namespace

absl::StatusOr<JournalContent> ReadJournal(const std::string& folder) {
  JournalContent content{.synced_log_bytes = ReadSynced(folder)};
  const std::string nodes = NodesPath(folder);
  absl::flat_hash_map<Digest, JournalPlace> tables;
  const auto take_node = [&](JournalNode node, uint64_t at, uint64_t size) {
    const WorkerId id = node.node;
    if (size > 0) tables[node.request.table.digest] = {nodes, at, size};
    content.nodes.insert_or_assign(id, std::move(node));
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(ForEachValue<JournalNode>(nodes, take_node).status());
  for (auto& [id, node] : content.nodes) {
    fleet::Blob& table = node.request.table;
    const auto place = tables.find(table.digest);
    if (place == tables.end()) continue;  // the node sent no table
    MACAW_ASSIGN_OR_RETURN(table, ReadBlob(place->second, table.digest));
  }
  for (const auto& [from, path] : PartsFiles(folder)) {
    const auto take_part = [&, &path = path](JournalPart part, uint64_t at, uint64_t size) {
      part.part.sums.size = size;
      if (size > 0) content.sums[part.part.sums.digest] = {path, at, size};
      const std::pair key(part.node, part.commit);
      content.parts.insert_or_assign(key, std::move(part));
      return absl::OkStatus();
    };
    MACAW_RETURN_IF_ERROR(ForEachValue<JournalPart>(path, take_part).status());
  }
  return content;
}

absl::StatusOr<fleet::Blob> ReadBlob(const JournalPlace& place, const Digest& digest) {
  MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(place.path));
  if (file.bytes().size() < place.offset + place.size)
    return absl::DataLossError(absl::StrCat(place.path, " has been cut"));
  AlignedBuffer buffer = AlignedBuffer::Unset(place.size);
  std::ranges::copy(file.bytes().subspan(place.offset, place.size), buffer.bytes().begin());
  fleet::Blob blob = fleet::Blob::Of(std::move(buffer));
  if (blob.digest == digest) return blob;
  return absl::DataLossError(
      absl::StrCat(place.path, " holds other bytes at ", place.offset, " than were written"));
}

absl::StatusOr<Journal> Journal::Begin(const std::string& folder, Round from) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot empty ", folder));
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  Journal journal(folder);
  MACAW_ASSIGN_OR_RETURN(journal.nodes_, FrameFile<JournalNode>::Open(NodesPath(folder), {}));
  MACAW_RETURN_IF_ERROR(journal.OpenParts(from));
  return journal;
}

absl::StatusOr<Journal> Journal::Continue(const std::string& folder) {
  Journal journal(folder);
  const auto note_table = [&](const JournalNode& node, uint64_t, uint64_t size) {
    if (size > 0) journal.tables_.insert(node.request.table.digest);
    return absl::OkStatus();
  };
  const std::string nodes = NodesPath(folder);
  MACAW_ASSIGN_OR_RETURN(const FramesEnd end, ForEachValue<JournalNode>(nodes, note_table));
  MACAW_ASSIGN_OR_RETURN(journal.nodes_, FrameFile<JournalNode>::Open(nodes, end));
  const std::map<Round, std::string> files = PartsFiles(folder);
  const auto note_round = [&](const JournalPart& part, uint64_t, uint64_t) {
    journal.NoteRound(part);
    return absl::OkStatus();
  };
  for (const auto& [from, path] : files)
    MACAW_RETURN_IF_ERROR(ForEachValue<JournalPart>(path, note_round).status());
  MACAW_RETURN_IF_ERROR(journal.OpenParts(files.empty() ? Round(1) : files.rbegin()->first));
  return journal;
}

absl::Status Journal::OpenParts(Round from) {
  if (!synced_.open()) {
    const std::string path = SyncedPath(folder_);
    synced_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kOwnerOnly));
    if (!synced_.open()) return FileError("cannot open", path);
  }
  const std::string path = PartsPath(folder_, from);
  const auto skip = [](const JournalPart&, uint64_t, uint64_t) { return absl::OkStatus(); };
  MACAW_ASSIGN_OR_RETURN(const FramesEnd end, ForEachValue<JournalPart>(path, skip));
  if (parts_.open()) MACAW_RETURN_IF_ERROR(Sync());  // the previous file
  MACAW_ASSIGN_OR_RETURN(parts_, FrameFile<JournalPart>::Open(path, end));
  return SyncDirectory(folder_);
}

absl::Status Journal::Add(const JournalNode& node) {
  const fleet::Blob& table = node.request.table;
  std::span<const std::byte> bytes;
  if (table.bytes != nullptr && tables_.insert(table.digest).second) bytes = table.bytes->bytes();
  return nodes_.Add(node, bytes);
}

absl::Status Journal::Add(const JournalPart& part) {
  std::span<const std::byte> sums;
  if (part.part.sums.bytes != nullptr) sums = part.part.sums.bytes->bytes();
  NoteRound(part);
  return parts_.Add(part, sums);
}

absl::Status Journal::Sync() {
  MACAW_RETURN_IF_ERROR(nodes_.Sync());
  return parts_.Sync();
}

absl::Status Journal::NoteSynced(uint64_t log_bytes) {
  const std::string text = EncodeSynced(log_bytes);
  const ssize_t written = ::pwrite(synced_.get(), text.data(), text.size(), 0);
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return FileError("cannot write", SyncedPath(folder_));
}

absl::Status Journal::OnCheckpoint(Round newest, Round oldest) {
  if (newest < newest_) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(OpenParts(Round(newest.value + 1)));
  const std::map<Round, std::string> files = PartsFiles(folder_);
  for (auto file = files.begin(); file != files.end(); ++file) {
    const auto next = std::next(file);
    if (next == files.end() || next->first.value > oldest.value + 1) break;
    std::error_code ignored;  // a file that stays only takes space and is read once more
    std::filesystem::remove(file->second, ignored);
  }
  return absl::OkStatus();
}

// ---- holdings

absl::StatusOr<std::vector<Restored::Member>> ReadHoldings(const std::string& run_dir) {
  const std::string path = HoldingsPath(run_dir);
  std::vector<Restored::Member> members;
  const auto take = [&](JournalNode node, uint64_t at, uint64_t size) -> absl::Status {
    Restored::Member member{.request = std::move(node.request), .there = false};
    fleet::Blob& table = member.request.table;
    MACAW_ASSIGN_OR_RETURN(const fleet::Blob read, ReadBlob({path, at, size}, table.digest));
    MACAW_ASSIGN_OR_RETURN(member.table,
                           fleet::ClientTable::Decode(read.bytes->bytes(), member.request.clients));
    members.push_back(std::move(member));
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(ForEachValue<JournalNode>(path, take).status());
  return members;
}

absl::StatusOr<Holdings> Holdings::Open(const std::string& run_dir, bool fresh) {
  Holdings holdings;
  holdings.path_ = HoldingsPath(run_dir);
  if (fresh) {
    std::error_code error;
    std::filesystem::remove(holdings.path_, error);
    if (error)
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", holdings.path_));
    return holdings;
  }
  const auto note = [&](const JournalNode& node, uint64_t, uint64_t) {
    holdings.known_[node.request.name] = node.request.data_digest;
    return absl::OkStatus();
  };
  const absl::StatusOr<FramesEnd> end = ForEachValue<JournalNode>(holdings.path_, note);
  if (!end.ok()) holdings.known_.clear();  // it cannot be read: it is written again
  holdings.end_ = end.value_or(FramesEnd());
  return holdings;
}

absl::Status Holdings::Add(const JournalNode& node) {
  const fleet::Blob& table = node.request.table;
  if (!node.request.owner || node.request.clients == 0 || table.bytes == nullptr)
    return absl::OkStatus();
  Digest& known = known_[node.request.name];
  if (known == node.request.data_digest) return absl::OkStatus();
  known = node.request.data_digest;
  if (!file_.open()) {
    MACAW_ASSIGN_OR_RETURN(file_, FrameFile<JournalNode>::Open(path_, end_));
  }
  JournalNode kept = node;
  kept.session = {};
  return file_.Add(kept, table.bytes->bytes());
}

}  // namespace macaw::server
