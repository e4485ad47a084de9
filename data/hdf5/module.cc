// libmacaw_hdf5.so: the only source that names the HDF5 library (https://www.hdfgroup.org).
#define H5_USE_110_API  // the calls of version 1.10, under all later ones
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/build_tag.h"
#include "core/status.h"
#include "data/hdf5/file.h"

namespace macaw::data {
namespace {

constexpr uint64_t kMostBytes = uint64_t{16} << 30;
// Of the filters that are usual (deflate): a stored byte unpacks to no more.
constexpr uint64_t kMostRatio = 1032, kSlack = 4096;
constexpr int kMostAxes = 8;

// The library serves one thread at a time.
ABSL_CONST_INIT absl::Mutex library(absl::kConstInit);

// Closes what it holds. Negative: an error.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t id() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  const hid_t id_;
  herr_t (*const close_)(hid_t);
};

herr_t AddName(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

// The type in which elements are handed over: the stored kind and size, little-endian.
hid_t MemoryType(char kind, uint64_t item) {
  switch (item) {
    case 1:
      return kind == 'u' ? H5T_STD_U8LE : kind == 'i' ? H5T_STD_I8LE : -1;
    case 2:
      return kind == 'u' ? H5T_STD_U16LE : kind == 'i' ? H5T_STD_I16LE : -1;
    case 4:
      return kind == 'u' ? H5T_STD_U32LE : kind == 'i' ? H5T_STD_I32LE : H5T_IEEE_F32LE;
    case 8:
      return kind == 'u' ? H5T_STD_U64LE : kind == 'i' ? H5T_STD_I64LE : H5T_IEEE_F64LE;
    default:
      return -1;
  }
}

class OpenedFile final : public Hdf5File {
 public:
  OpenedFile(std::string path, hid_t file) : path_(std::move(path)), file_(file) {}
  ~OpenedFile() override {
    const absl::MutexLock lock(&library);
    H5Fclose(file_);
  }

  absl::StatusOr<std::vector<std::string>> Members(const std::string& group) override {
    const absl::MutexLock lock(&library);
    const Handle opened(H5Gopen2(file_, group.c_str(), H5P_DEFAULT), H5Gclose);
    if (!opened.ok()) return Refuse(group, "is no group of this file");
    std::vector<std::string> names;
    hsize_t at = 0;
    if (H5Literate(opened.id(), H5_INDEX_NAME, H5_ITER_INC, &at, AddName, &names) < 0)
      return Refuse(group, "is damaged");
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<StoredArray> Read(const std::string& path, std::string& bytes) override {
    const absl::MutexLock lock(&library);
    const Handle set(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose);
    if (!set.ok()) return Refuse(path, "is no data set of this file");
    const Handle type(H5Dget_type(set.id()), H5Tclose), space(H5Dget_space(set.id()), H5Sclose);
    if (!type.ok() || !space.ok()) return Refuse(path, "is damaged");
    hsize_t extents[kMostAxes] = {};
    const int axes = H5Sget_simple_extent_ndims(space.id());
    if (axes < 0 || axes > kMostAxes) return Refuse(path, "has more than eight axes");
    H5Sget_simple_extent_dims(space.id(), extents, nullptr);
    StoredArray array{.name = absl::StrCat(path_, ": ", path)};
    array.shape.assign(extents, extents + axes);
    array.item = H5Tget_size(type.id());
    switch (H5Tget_class(type.id())) {
      case H5T_INTEGER:
        array.kind = H5Tget_sign(type.id()) == H5T_SGN_NONE ? 'u' : 'i';
        break;
      case H5T_FLOAT:
        array.kind = 'f';
        break;
      case H5T_STRING:
        array.kind = 'S';
        break;
      default:
        return Refuse(path, "is neither of numbers nor of texts");
    }
    const absl::StatusOr<uint64_t> size = SizeOf(set.id(), path, array);
    if (!size.ok()) return size.status();
    if (array.kind == 'S' && H5Tis_variable_str(type.id()) > 0) {
      MACAW_RETURN_IF_ERROR(ReadTexts(set.id(), type.id(), space.id(), path, array, bytes));
    } else {
      const hid_t memory = array.kind == 'S' ? type.id() : MemoryType(array.kind, array.item);
      if (memory < 0) return Refuse(path, "is of a type that is not read; use uint8 or float32");
      bytes.resize(*size);
      if (H5Dread(set.id(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)
        return Unreadable(path);
    }
    array.data = bytes;
    return array;
  }

 private:
  absl::Status Refuse(const std::string& path, absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", path, " ", why));
  }
  absl::Status Unreadable(const std::string& path) const {
    return Refuse(path, "cannot be read: it is damaged, or packed by a filter that is not here");
  }

  // The bytes of all elements, checked against what is stored before anybody makes room for them.
  absl::StatusOr<uint64_t> SizeOf(hid_t set, const std::string& path,
                                  const StoredArray& array) const {
    uint64_t size = array.item;
    for (const uint64_t extent : array.shape) {
      if (__builtin_mul_overflow(size, extent, &size) || size > kMostBytes)
        return Refuse(path, "is larger than 16 GiB");
    }
    const uint64_t stored = H5Dget_storage_size(set);
    if (stored < kMostBytes && size > stored * kMostRatio + kSlack)
      return Refuse(path, absl::StrCat("is damaged: ", stored, " bytes do not unpack to ", size));
    return size;
  }

  absl::Status ReadTexts(hid_t set, hid_t type, hid_t space, const std::string& path,
                         StoredArray& array, std::string& bytes) const {
    uint64_t count = 1;
    for (const uint64_t extent : array.shape) count *= extent;
    std::vector<char*> texts(count, nullptr);
    if (H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()) < 0)
      return Unreadable(path);
    array.item = 1;
    for (const char* const text : texts) {
      if (text != nullptr) array.item = std::max<uint64_t>(array.item, std::strlen(text));
    }
    const bool fits = array.item <= kMostBytes / std::max<uint64_t>(count, 1);
    bytes.assign(fits ? count * array.item : 0, '\0');
    for (size_t i = 0; fits && i < texts.size(); ++i) {
      if (texts[i] != nullptr)
        std::memcpy(bytes.data() + i * array.item, texts[i], std::strlen(texts[i]));
    }
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts.data());
    return fits ? absl::OkStatus() : Refuse(path, "has texts of more than 16 GiB");
  }

  const std::string path_;
  const hid_t file_;
};

absl::StatusOr<std::unique_ptr<Hdf5File>> Open(const std::string& path) {
  const absl::MutexLock lock(&library);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // the library does not print errors
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0)
    return absl::InvalidArgumentError(absl::StrCat(path, " is damaged or no HDF5 file"));
  return std::make_unique<OpenedFile>(path, file);
}

}  // namespace
}  // namespace macaw::data

extern "C" __attribute__((visibility("default"))) const macaw::data::Hdf5Entry* macaw_hdf5() {
  static constexpr macaw::data::Hdf5Entry kEntry = {MACAW_BUILD_TAG, macaw::data::Open};
  return &kEntry;
}
