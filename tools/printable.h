// Text that others wrote (names, ids, messages, paths), for a terminal: no byte of it acts on the
// terminal. For people alone; data and JSON stay as they are. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace batchmill {

// One line: control characters, also those of the C1 set and those that turn the direction of
// writing, and what is no UTF-8 become \n, \t, \xNN or \uNNNN.
std::string printable(std::string_view text);

// The same of lines: newlines stay.
std::string printable_lines(std::string_view text);

// From now on, for the whole process: what goes through std::cerr is printable_lines. What draws on
// the terminal goes through std::clog.
void make_messages_printable();

}  // namespace batchmill
