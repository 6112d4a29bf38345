// Whether g++ built this with a sanitizer: freed memory is kept for a while, and everything but a
// scripted device's step is some ten times slower.
#pragma once

namespace batchmill {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizedBuild = true;
#else
inline constexpr bool kSanitizedBuild = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizedBuild = true;
#else
inline constexpr bool kThreadSanitizedBuild = false;
#endif

}  // namespace batchmill
