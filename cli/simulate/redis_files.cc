#include "cli/simulate/redis_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kAppendOnly[] = "appendonlydir";
constexpr char kManifest[] = "appendonly.aof.manifest";

// Reads an append-only file: lines, and strings whose length is given before them.
class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}
  size_t at() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  bool ran_out() const { return ran_out_; }  // the file ended where more was expected

  // "*3\r\n" as 3; nothing when the file has ended, or something else stands here.
  std::optional<uint64_t> Count(char kind) {
    const size_t end = text_.find("\r\n", at_);
    if (end == absl::string_view::npos) {
      constexpr size_t kLongest = 24;  // a longer line is not a count
      ran_out_ = text_.size() - at_ <= kLongest && (at_end() || text_[at_] == kind);
      return std::nullopt;
    }
    uint64_t count = 0;
    if (text_[at_] != kind || !absl::SimpleAtoi(text_.substr(at_ + 1, end - at_ - 1), &count)) {
      return std::nullopt;
    }
    at_ = end + 2;
    return count;
  }
  bool Skip(uint64_t bytes) {
    constexpr uint64_t kLongest = uint64_t{1} << 30;  // Redis takes half of that
    if (bytes > kLongest) return false;
    if (text_.size() - at_ < bytes + 2) {
      ran_out_ = true;
      return false;
    }
    if (text_.substr(at_ + bytes, 2) != "\r\n") return false;
    at_ += bytes + 2;
    return true;
  }
  bool Command() {
    const std::optional<uint64_t> words = Count('*');
    for (uint64_t i = 0; words.has_value() && i < *words; ++i) {
      const std::optional<uint64_t> bytes = Count('$');
      if (!bytes.has_value() || !Skip(*bytes)) return false;
    }
    return words.has_value();
  }

 private:
  absl::string_view text_;
  size_t at_ = 0;
  bool ran_out_ = false;
};

// The append-only files that Redis will read, in order.
absl::StatusOr<std::vector<std::string>> Increments(const std::string& folder) {
  std::vector<std::string> files;
  const std::string manifest = absl::StrCat(folder, "/", kManifest);
  if (!FileExists(manifest)) return files;
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');  // file NAME seq N type i
    if (words.size() == 6 && words[0] == "file" && words[5] == "i") {
      files.push_back(absl::StrCat(folder, "/", words[1]));
    }
  }
  return files;
}

void RemoveAside(const std::string& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("temp-rewriteaof-") ||
        (name.starts_with("temp-") && entry.path().extension() == ".rdb")) {
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

uint64_t WholeCommands(absl::string_view file) {
  Reader reader(file);
  while (!reader.at_end()) {
    const size_t begin = reader.at();
    if (!reader.Command()) return reader.ran_out() ? begin : file.size();
  }
  return file.size();
}

void SweepRedisFiles(const std::string& folder) {
  RemoveAside(folder);
  RemoveAside(absl::StrCat(folder, "/", kAppendOnly));
}

absl::StatusOr<std::vector<std::string>> MendRedisFiles(const std::string& folder) {
  SweepRedisFiles(folder);
  const std::string append_only = absl::StrCat(folder, "/", kAppendOnly);
  MACAW_ASSIGN_OR_RETURN(std::vector<std::string> files, Increments(append_only));
  if (!files.empty()) files.pop_back();  // Redis repairs the last one itself
  std::vector<std::string> cut;
  for (const std::string& path : files) {
    if (!FileExists(path)) continue;  // Redis reports that
    uint64_t size = 0, whole = 0;
    {
      MACAW_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
      size = mapped.bytes().size();
      whole = WholeCommands(
          absl::string_view(reinterpret_cast<const char*>(mapped.bytes().data()), size));
    }
    if (whole == size) continue;
    std::error_code error;
    fs::resize_file(path, whole, error);
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot cut ", path));
    cut.push_back(absl::StrCat(path, ": cut off ", size - whole,
                               " bytes of a command that was half written"));
  }
  return cut;
}

}  // namespace macaw::cli
