//! Where clients keep the list of their servers.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::context::variable;
use crate::exit::Failure;

/// A client whose configuration we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Code: .mcp.json of the project, else ~/.claude.json with what it holds for the project
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Cursor: .cursor/mcp.json of the project, else of the user
    Cursor,
    /// Visual Studio Code: .vscode/mcp.json of the project, else of the user
    Vscode,
}

impl Client {
    /// The member that holds the servers.
    pub fn field(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => "mcpServers",
            Self::Vscode => "servers",
        }
    }

    /// The project at hand, where the user's file may hold servers of its own for each project.
    pub fn project(self) -> Option<String> {
        let here = std::env::current_dir().ok().filter(|_| self == Self::ClaudeCode)?;
        here.into_os_string().into_string().ok()
    }

    /// The file: the project's if there is one, else the user's.
    pub fn file(self) -> Result<PathBuf, Failure> {
        let project = match self {
            Self::ClaudeCode => Some(".mcp.json"),
            Self::Cursor => Some(".cursor/mcp.json"),
            Self::Vscode => Some(".vscode/mcp.json"),
            Self::ClaudeDesktop => None,
        };
        if let Some(project) = project.map(PathBuf::from).filter(|path| path.exists()) {
            return Ok(project);
        }
        let home = variable("HOME").map(PathBuf::from);
        let home = home.ok_or_else(|| Failure::usage("HOME is not set; name the file with --file"))?;
        let applications = if cfg!(target_os = "macos") {
            home.join("Library/Application Support")
        } else {
            variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from)
        };
        Ok(match self {
            Self::ClaudeCode => home.join(".claude.json"),
            Self::ClaudeDesktop => applications.join("Claude/claude_desktop_config.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Vscode => applications.join("Code/User/mcp.json"),
        })
    }
}
