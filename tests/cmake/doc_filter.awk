# apiary/tests/cmake/doc_filter.awk - our plain // comments as the /// that Doxygen reads.
# SPDX-License-Identifier: MIT
#
# A block of // lines before a declaration becomes a block of ///, a // behind code a ///<. The lines
# before #pragma once become the description of the file. APIARY_NAMESPACE_BEGIN and _END are written out.
BEGIN { head = 1 }
head && /^\/\/ SPDX-License-Identifier/ { print "//"; next }
head && /^\/\/ apiary\// {
  sub(/^\/\/ apiary\/[^ ]+ - /, "")
  print "/// @file"
  next
}
/^#pragma once/ { head = 0 }
/^ *\/\/ clang-format|\/\/ NOLINT|^ *} *\/\/ namespace|^#endif|^#else/ { print; next }
/^ *\/\// { sub(/\/\//, "///"); gsub(/[<>@\\#%]/, "\\\\&"); print; next }
{
  at = index($0, "  // ")
  if (at > 0) {
    code = substr($0, 1, at - 1)
    text = substr($0, at + 5)
    gsub(/[<>@\\#%]/, "\\\\&", text)
    if (code ~ /[;,{]$|[A-Za-z0-9_]$/ && code !~ /^ *(return|if|for|while|else|case|})/) {
      print code "  ///< " text
      next
    }
  }
  print
}
