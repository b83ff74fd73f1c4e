//! A directed graph with labelled edges, and the shortest cycle of each strongly connected part.

use std::collections::VecDeque;

/// Nodes `0..n`; parallel edges keep the first label.
pub(super) struct Graph<L> {
    edges: Vec<Vec<(usize, L)>>,
}

impl<L> Graph<L> {
    pub(super) fn new(nodes: usize) -> Self {
        Self { edges: (0..nodes).map(|_| Vec::new()).collect() }
    }

    /// Adds a node and gives its number.
    pub(super) fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// Adds an edge; loops are left out, a transaction does not depend on itself.
    pub(super) fn add(&mut self, from: usize, to: usize, label: L) {
        if from != to {
            self.edges[from].push((to, label));
        }
    }

    pub(super) fn edge_count(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// One shortest cycle for each strongly connected component with more than one node, as (from, to, label).
    pub(super) fn cycles(&self) -> Vec<Vec<(usize, usize, &L)>> {
        let component = self.components();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.edges.len()];
        for (node, &component) in component.iter().enumerate() {
            members[component].push(node);
        }
        let parts = members.into_iter().filter(|members| members.len() > 1);
        parts.filter_map(|members| self.shortest_cycle(&members, &component)).collect()
    }

    /// The component number of each node (Tarjan's algorithm, with its own stack: histories are long).
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let n = self.edges.len();
        let (mut index, mut low, mut component) = (vec![UNSEEN; n], vec![0; n], vec![UNSEEN; n]);
        let (mut open, mut path, mut next_index, mut next_component) = (Vec::new(), Vec::new(), 0, 0);
        for root in 0..n {
            if index[root] != UNSEEN {
                continue;
            }
            path.push((root, 0));
            while let Some(&mut (node, ref mut edge)) = path.last_mut() {
                if *edge == 0 {
                    (index[node], low[node]) = (next_index, next_index);
                    next_index += 1;
                    open.push(node);
                }
                if let Some(&(to, _)) = self.edges[node].get(*edge) {
                    *edge += 1;
                    if index[to] == UNSEEN {
                        path.push((to, 0));
                    } else if component[to] == UNSEEN {
                        low[node] = low[node].min(index[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent] = low[parent].min(low[node]);
                }
                if low[node] == index[node] {
                    while let Some(member) = open.pop() {
                        component[member] = next_component;
                        if member == node {
                            break;
                        }
                    }
                    next_component += 1;
                }
            }
        }
        component
    }

    fn shortest_cycle(&self, members: &[usize], component: &[usize]) -> Option<Vec<(usize, usize, &L)>> {
        // A start per member would be quadratic in a large component; a few starts find a short enough cycle.
        const STARTS: usize = 64;
        let cycles = members.iter().take(STARTS).filter_map(|&start| self.cycle_through(start, component));
        cycles.min_by_key(Vec::len)
    }

    fn cycle_through(&self, start: usize, component: &[usize]) -> Option<Vec<(usize, usize, &L)>> {
        let mut reached_by: Vec<Option<(usize, &L)>> = self.edges.iter().map(|_| None).collect();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (to, label) in &self.edges[node] {
                if component[*to] != component[start] || reached_by[*to].is_some() {
                    continue;
                }
                reached_by[*to] = Some((node, label));
                if *to == start {
                    return Some(walk_back(start, &reached_by));
                }
                queue.push_back(*to);
            }
        }
        None
    }
}

fn walk_back<'g, L>(start: usize, reached_by: &[Option<(usize, &'g L)>]) -> Vec<(usize, usize, &'g L)> {
    let (mut cycle, mut node) = (Vec::new(), start);
    while let Some((from, label)) = reached_by[node] {
        cycle.push((from, node, label));
        node = from;
        if node == start {
            break;
        }
    }
    cycle.reverse();
    cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_shortest_cycle_of_each_component() {
        let mut graph = Graph::new(6);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 3), (3, 4), (4, 5), (5, 3), (0, 0)] {
            graph.add(from, to, ());
        }
        let mut lengths: Vec<_> = graph.cycles().iter().map(Vec::len).collect();
        lengths.sort();
        assert_eq!(lengths, [2, 3]);
    }

    #[test]
    fn a_graph_without_cycles_has_none() {
        let mut graph = Graph::new(2000);
        for node in 1..2000 {
            graph.add(node - 1, node, ());
            graph.add(0, node, ());
        }
        assert!(graph.cycles().is_empty());
    }
}
