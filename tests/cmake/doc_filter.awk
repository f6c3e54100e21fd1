# apiary/tests/cmake/doc_filter.awk - our plain // comments as the /// that Doxygen reads.
# SPDX-License-Identifier: MIT
#
# A block of // lines before a declaration becomes a block of ///, a // behind code a ///<, with the lines
# below it that start in the same column. The lines before #pragma once become the description of the
# file.
# In a README, a link to a page outside the headers becomes its text: the reference has no such page.
BEGIN { head = 1 }
FILENAME ~ /\.md$/ {
  while (match($0, /\]\(\.\.\/\.\.\/\.\.\/[^)]*\)/)) {
    before = substr($0, 1, RSTART - 1)
    after = substr($0, RSTART + RLENGTH)
    label = match(before, /[^[]*$/)
    $0 = substr(before, 1, label - 2) substr(before, label) after
  }
  print
  next
}
head && /^\/\/ SPDX-License-Identifier/ { print "//"; next }
head && /^\/\/ apiary\// {
  sub(/^\/\/ apiary\/[^ ]+ - /, "")
  print "/// @file"
  next
}
/^#pragma once/ { head = 0 }
/^ *\/\/ clang-format|\/\/ NOLINT|^ *} *\/\/ namespace|^#endif|^#else/ { print; next }
/^ *\/\// {
  mark = index($0, "//") == column ? "///<" : "///"
  sub(/\/\//, mark)
  text = substr($0, index($0, mark) + length(mark))
  gsub(/[<>@\\#%]/, "\\\\&", text)
  print substr($0, 1, index($0, mark) + length(mark) - 1) text
  next
}
{
  column = 0
  at = index($0, "  // ")
  if (at > 0) {
    code = substr($0, 1, at - 1)
    text = substr($0, at + 5)
    sub(/ +$/, "", code)
    gsub(/[<>@\\#%]/, "\\\\&", text)
    if (code ~ /[;,{]$|[A-Za-z0-9_]$/ && code !~ /^ *(return|if|for|while|else|case|})/) {
      column = at + 2
      print code "  ///< " text
      next
    }
  }
  print
}
