#include "server/journal/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"
#include "server/journal/bytes.h"
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

// Identifies the fields of a T and their order. So a journal of another release is recognised.
template <typename T>
uint64_t FormatWord() {
  static const uint64_t word = Checksum(BytesOf(FormatOf<T>()));
  return word;
}

constexpr uint64_t kFrameHead = 16, kFrameFoot = 8;
constexpr mode_t kOwnerOnly = 0600;
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

// ---- heads: the format of what follows, then the fields

// Of a JournalNode or JournalPart, without the bytes of its blob.
template <typename T>
std::string Encode(const T& value) {
  ByteWriter out;
  out.PutNumber(FormatWord<T>());
  out.Put(value);
  return std::move(out).Take();
}

template <typename T>
std::optional<T> Decode(absl::string_view head) {
  ByteReader in(head);
  if (in.Number() != FormatWord<T>()) return std::nullopt;
  T value;
  in.Get(value);
  if (!in.at_end()) return std::nullopt;
  return value;
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

// ---- frames

uint64_t ChecksumOf(absl::string_view head, std::span<const std::byte> blob) {
  const uint64_t sums[] = {Checksum(BytesOf(head)), Checksum(blob)};
  return Checksum(std::as_bytes(std::span(sums)));
}

absl::Status WriteFrame(RecordFile& file, absl::string_view head, std::span<const std::byte> blob) {
  ByteWriter sizes, foot;
  sizes.PutNumber(head.size());
  sizes.PutNumber(blob.size());
  foot.PutNumber(ChecksumOf(head, blob));
  const std::string first = std::move(sizes).Take(), last = std::move(foot).Take();
  return file.Append({BytesOf(first), BytesOf(head), blob, BytesOf(last)});
}

// Calls use(head, offset of the blob, size of the blob) for each whole frame of the file. `use`
// returns false if the head is invalid. Returns the offset at which the frames end.
template <typename Use>
absl::StatusOr<uint64_t> ForEachFrame(const std::string& path, const Use& use) {
  if (!FileExists(path)) return 0;
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (size == 0) return 0;
  MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  const auto text = [&](uint64_t at, uint64_t count) {
    return absl::string_view(reinterpret_cast<const char*>(bytes.data()) + at, count);
  };
  uint64_t at = 0;
  while (bytes.size() - at >= kFrameHead + kFrameFoot) {
    ByteReader sizes(text(at, kFrameHead));
    const uint64_t head = sizes.Number(), blob = sizes.Number();
    const uint64_t room = bytes.size() - at - kFrameHead - kFrameFoot;
    if (head > room || blob > room - head) break;
    const uint64_t head_at = at + kFrameHead, blob_at = head_at + head, foot_at = blob_at + blob;
    if (ByteReader(text(foot_at, kFrameFoot)).Number() !=
        ChecksumOf(text(head_at, head), bytes.subspan(blob_at, blob))) {
      break;
    }
    if (!use(text(head_at, head), blob_at, blob)) {
      return absl::DataLossError(absl::StrCat(
          path, " was written by another release: what is at byte ", at, " has other fields"));
    }
    at = foot_at + kFrameFoot;
  }
  return at;
}

}  // namespace

absl::StatusOr<JournalContent> ReadJournal(const std::string& folder) {
  JournalContent content{.synced_log_bytes = ReadSynced(folder)};
  const std::string nodes = NodesPath(folder);
  absl::flat_hash_map<Digest, JournalPlace> tables;
  MACAW_RETURN_IF_ERROR(
      ForEachFrame(nodes, [&](absl::string_view head, uint64_t at, uint64_t size) {
        std::optional<JournalNode> node = Decode<JournalNode>(head);
        if (!node.has_value()) return false;
        const WorkerId id = node->node;
        if (size > 0) tables[node->request.table.digest] = {nodes, at, size};
        content.nodes.insert_or_assign(id, *std::move(node));
        return true;
      }).status());
  for (auto& [id, node] : content.nodes) {
    fleet::Blob& table = node.request.table;
    const auto place = tables.find(table.digest);
    if (place == tables.end()) continue;  // the node sent no table
    MACAW_ASSIGN_OR_RETURN(table, ReadBlob(place->second, table.digest));
  }
  for (const auto& [from, path] : PartsFiles(folder)) {
    MACAW_RETURN_IF_ERROR(
        ForEachFrame(path, [&, &path = path](absl::string_view head, uint64_t at, uint64_t size) {
          std::optional<JournalPart> part = Decode<JournalPart>(head);
          if (!part.has_value()) return false;
          part->part.sums.size = size;
          if (size > 0) content.sums[part->part.sums.digest] = {path, at, size};
          const std::pair key(part->node, part->commit);
          content.parts.insert_or_assign(key, *std::move(part));
          return true;
        }).status());
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
  MACAW_ASSIGN_OR_RETURN(journal.nodes_, RecordFile::Open(NodesPath(folder), 0, kOwnerOnly));
  MACAW_RETURN_IF_ERROR(journal.OpenParts(from));
  return journal;
}

absl::StatusOr<Journal> Journal::Continue(const std::string& folder) {
  Journal journal(folder);
  const auto note_table = [&](absl::string_view head, uint64_t, uint64_t size) {
    const std::optional<JournalNode> node = Decode<JournalNode>(head);
    if (node.has_value() && size > 0) journal.tables_.insert(node->request.table.digest);
    return node.has_value();
  };
  MACAW_ASSIGN_OR_RETURN(const uint64_t nodes, ForEachFrame(NodesPath(folder), note_table));
  MACAW_ASSIGN_OR_RETURN(journal.nodes_, RecordFile::Open(NodesPath(folder), nodes, kOwnerOnly));
  const std::map<Round, std::string> files = PartsFiles(folder);
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
  MACAW_ASSIGN_OR_RETURN(const uint64_t keep, ForEachFrame(path, [](absl::string_view, uint64_t,
                                                                    uint64_t) { return true; }));
  if (parts_.fd().open()) MACAW_RETURN_IF_ERROR(Sync());  // the previous file
  MACAW_ASSIGN_OR_RETURN(parts_, RecordFile::Open(path, keep, kOwnerOnly));
  return SyncDirectory(folder_);
}

absl::Status Journal::Add(const JournalNode& node) {
  const fleet::Blob& table = node.request.table;
  std::span<const std::byte> bytes;
  if (table.bytes != nullptr && tables_.insert(table.digest).second) bytes = table.bytes->bytes();
  return WriteFrame(nodes_, Encode(node), bytes);
}

absl::Status Journal::Add(const JournalPart& part) {
  std::span<const std::byte> sums;
  if (part.part.sums.bytes != nullptr) sums = part.part.sums.bytes->bytes();
  return WriteFrame(parts_, Encode(part), sums);
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
  absl::Status damaged;
  MACAW_RETURN_IF_ERROR(
      ForEachFrame(path, [&](absl::string_view head, uint64_t at, uint64_t size) {
        std::optional<JournalNode> node = Decode<JournalNode>(head);
        if (!node.has_value()) return false;
        Restored::Member member{.request = std::move(node->request), .there = false};
        fleet::Blob& table = member.request.table;
        const absl::StatusOr<fleet::Blob> read = ReadBlob({path, at, size}, table.digest);
        if (!read.ok()) damaged = read.status();
        if (!damaged.ok()) return true;
        absl::StatusOr<fleet::ClientTable> clients =
            fleet::ClientTable::Decode(read->bytes->bytes(), member.request.clients);
        if (!clients.ok()) damaged = clients.status();
        if (!damaged.ok()) return true;
        member.table = *std::move(clients);
        members.push_back(std::move(member));
        return true;
      }).status());
  MACAW_RETURN_IF_ERROR(damaged);
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
  const absl::StatusOr<uint64_t> end =
      ForEachFrame(holdings.path_, [&](absl::string_view head, uint64_t, uint64_t) {
        const std::optional<JournalNode> node = Decode<JournalNode>(head);
        if (node.has_value()) holdings.known_.insert(node->request.data_digest);
        return node.has_value();
      });
  if (!end.ok()) holdings.known_.clear();  // of another release: it is written again
  holdings.end_ = end.value_or(0);
  return holdings;
}

absl::Status Holdings::Add(const JournalNode& node) {
  const fleet::Blob& table = node.request.table;
  if (!node.request.owner || node.request.clients == 0 || table.bytes == nullptr ||
      !known_.insert(node.request.data_digest).second) {
    return absl::OkStatus();
  }
  if (!file_.has_value()) {
    MACAW_ASSIGN_OR_RETURN(file_, RecordFile::Open(path_, end_, kOwnerOnly));
  }
  JournalNode kept = node;
  kept.session = {};
  return WriteFrame(*file_, Encode(kept), table.bytes->bytes());
}

}  // namespace macaw::server
