#include "data/source_file.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostUnpacked = size_t{16} << 30;
constexpr size_t kStep = size_t{1} << 20;

class Inflater {
 public:
  Inflater() { ok_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }  // 15 + 16: gzip framing only
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ok_) inflateEnd(&stream_);
  }
  bool ok() const { return ok_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
  bool ok_ = false;
};

absl::StatusOr<std::string> Unpack(const std::string& packed, const std::string& path) {
  Inflater inflater;
  if (!inflater.ok()) return absl::InternalError(absl::StrCat(path, ": zlib does not start"));
  z_stream& stream = inflater.stream();
  std::string out;
  size_t fed = 0;
  while (true) {
    if (stream.avail_in == 0 && fed < packed.size()) {
      const size_t step = std::min(kStep, packed.size() - fed);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
      stream.avail_in = static_cast<uInt>(step);
      fed += step;
    }
    const size_t before = out.size();
    if (before >= kMostUnpacked) {
      return absl::InvalidArgumentError(absl::StrCat(path, " unpacks to more than 16 GiB"));
    }
    out.resize(before + std::max(std::min(before, size_t{64} << 20), size_t{1} << 16));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(out.size() - before);
    const int result = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    const bool drained = stream.avail_in == 0 && fed == packed.size();
    if (result == Z_STREAM_END) {
      if (drained) return out;
      if (inflateReset(&stream) != Z_OK) return absl::InternalError("zlib does not restart");
      continue;  // a gzip file may have several members
    }
    if (result == Z_BUF_ERROR || (result == Z_OK && drained && stream.avail_out > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " is cut short: its gzip data ends after ", out.size(), " unpacked bytes"));
    }
    if (result != Z_OK) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is damaged near byte ", fed - stream.avail_in, ": ",
                       stream.msg == nullptr ? "bad gzip data" : stream.msg));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ReadSource(const std::string& path, Digester& digest) {
  if (path.empty()) return absl::InvalidArgumentError("data.path is empty: name a file or folder");
  MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  digest.Add(bytes);
  const bool packed = absl::StartsWith(bytes, "\x1f\x8b");
  if (packed) {
    MACAW_ASSIGN_OR_RETURN(bytes, Unpack(bytes, path));
  }
  if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return bytes;
}

absl::StatusOr<std::string> ReadHead(const std::string& path, size_t most) {
  // gzopen also reads files that are not compressed.
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::string head(most, '\0');
  const int read = gzread(file, head.data(), static_cast<unsigned>(most));
  gzclose_r(file);
  if (read < 0) return absl::InvalidArgumentError(absl::StrCat(path, " is damaged: bad gzip data"));
  head.resize(static_cast<size_t>(read));
  return head;
}

absl::Status CheckExists(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path, " does not exist",
                                          error && error != std::errc::no_such_file_or_directory
                                              ? absl::StrCat(": ", error.message())
                                              : ""));
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string FindIn(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const char* ending : {"", ".gz"}) {
      const std::string path = (fs::path(folder) / (name + ending)).string();
      if (FileExists(path)) return path;
    }
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder,
                                                 absl::string_view ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (absl::EndsWith(it->path().string(), ending)) files.push_back(it->path().string());
  }
  if (error)
    return absl::NotFoundError(absl::StrCat("cannot read folder ", folder, ": ", error.message()));
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat("folder ", folder, " holds no *", ending, " file"));
  }
  return files;
}

}  // namespace macaw::data
