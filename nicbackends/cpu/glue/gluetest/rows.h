// Rows of a trace for the drivers of the tests: t_ns and the fields of a shell's input by name; what is not in a row did not happen.
#ifndef ROWS_H
#define ROWS_H

#include <cstdint>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

struct Row {
	uint64_t t_ns = 0;
	std::map<std::string, uint64_t> values;

	bool has(const char *name) const { return values.count(name); }
	uint64_t get(const char *name) const { return has(name) ? values.at(name) : 0; }
};

inline std::vector<Row> read_rows(std::istream &in)
{
	std::vector<std::string> names;
	std::vector<Row> rows;
	std::string line, cell;
	while (std::getline(in, line)) {
		std::stringstream cells(line);
		Row row;
		for (size_t i = 0; std::getline(cells, cell, ','); i++) {
			if (rows.empty() && names.size() == i && !cell.empty() && !isdigit(cell[0])) {
				names.push_back(cell);
				continue;
			}
			if (i == 0)
				row.t_ns = std::stoull(cell);
			else if (!cell.empty())
				row.values[names[i]] = std::stoull(cell);
		}
		if (!isdigit(line[0]))
			continue; // the heading
		rows.push_back(row);
	}
	return rows;
}

#endif
