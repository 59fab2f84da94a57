import{a}from"./chunk-R4WQJVCI.js";export{a as messages};
